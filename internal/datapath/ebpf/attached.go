package ebpf

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
)

// attach attaches the programs; the maps are complete by now. Links found
// in the pins get the new program at one instant, so no packet sees none.
func (d *Datapath) attach() error {
	wanted := map[string]bool{}
	var made []string
	for i := range d.attached {
		a := &d.attached[i]
		wanted[a.PinName()] = true
		l, how, err := d.attachOne(a)
		if err != nil {
			for _, pin := range made {
				err = errors.Join(err, d.pins.Detach(pin))
			}
			return err
		}
		if how == newLink && d.pins != nil {
			made = append(made, a.PinName())
		}
		d.closing = append(d.closing, l.Close)
		d.log.Info(how, "event", "program_attached", "interface", a.Name, "hook", a.Hook.String(), "why", a.Why)
		if len(a.Others) > 0 {
			d.log.Info("other programs are on the same hook", "interface", a.Name, "programs", strings.Join(a.Others, ", "), "weir_runs_last", d.config.Last)
		}
	}
	if d.pins != nil {
		for _, pin := range d.pins.Links() {
			if !wanted[pin] {
				d.log.Info("detached: no longer requested", "link", pin)
				if err := d.pins.Detach(pin); err != nil {
					return err
				}
			}
		}
	}
	d.inPlace = true
	if !d.config.NoPeers {
		for _, warning := range attach.WakePeers(d.attached, d.store.NoteOffload) {
			d.log.Warn(warning, "event", "attach_warning")
		}
	}
	return nil
}

const newLink = "attached"

// program returns a hook's program.
func (d *Datapath) program(hook attach.Hook) *ebpf.Program {
	for _, name := range []string{"weir_tcx", "weir_xdp", "weir_xdp_jumbo"} {
		if p := d.objects[hook].Programs[name]; p != nil {
			return p
		}
	}
	return nil
}

// attachOne takes over the pinned link of an interface, or makes one.
func (d *Datapath) attachOne(a *attach.Interface) (l link.Link, how string, err error) {
	p := d.program(a.Hook)
	if d.pins != nil {
		l, err := a.TakeOver(d.pins.LinkAt(a.PinName()), p)
		if err == nil {
			return l, "program replaced", nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			d.log.Warn("attached again", "interface", a.Name, "because", err.Error())
			if err := d.pins.Detach(a.PinName()); err != nil {
				return nil, "", err
			}
		}
	}
	if l, err = a.Attach(p, d.config.Last); err != nil {
		return nil, "", err
	}
	if d.pins != nil {
		if err := l.Pin(d.pins.LinkAt(a.PinName())); err != nil {
			l.Close()
			return nil, "", fmt.Errorf("pin the link to %s: %w", a.Name, err)
		}
	}
	return l, newLink, nil
}

// follow attaches again where an interface was made again, as with a container
// that restarts. The caller holds mu.
func (d *Datapath) follow() {
	if !d.inPlace {
		return
	}
	for i := range d.attached {
		a := &d.attached[i]
		l, err := d.links.LinkByName(a.Name)
		if err != nil {
			if !a.Gone {
				a.Gone = true
				d.log.Warn("interface is gone; attached again when it is back", "interface", a.Name)
			}
			continue
		}
		if l.Attrs().Index == a.Index {
			a.Gone = false
			continue
		}
		if err := d.inNamespace(func() error { return d.attachAgain(a, l) }); err != nil {
			if !a.Gone {
				d.log.Error("interface was made again and cannot be attached; tried again every second", "interface", a.Name, "error", err)
			}
			a.Gone = true
		}
	}
}

func (d *Datapath) attachAgain(a *attach.Interface, l netlink.Link) error {
	before := a.Index
	a.Index = l.Attrs().Index
	made, _, err := d.attachOne(a)
	if err != nil {
		a.Index = before
		return err
	}
	a.Gone = false
	d.closing = append(d.closing, made.Close)
	d.log.Info("attached again", "interface", a.Name, "hook", a.Hook.String())
	if !d.config.NoPeers {
		for _, warning := range attach.WakePeers([]attach.Interface{*a}, d.store.NoteOffload) {
			d.log.Warn(warning, "event", "attach_warning")
		}
	}
	return nil
}

// inNamespace runs f in the data path's network namespace.
func (d *Datapath) inNamespace(f func() error) error {
	return attach.InNamespace(d.namespace, f)
}
