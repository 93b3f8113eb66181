package ebpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
)

// attachment is one interface and the hook chosen for it.
type attachment struct {
	name   string
	index  int
	hook   Hook
	why    string
	local  bool // senders on this machine leave checksums to us
	jumbo  bool
	beside []string // other programs on the same hook
	gone   bool     // the interface is not there now
}

// pinName is the name of its link among the pins.
func (a *attachment) pinName() string { return pinOfLink(a.hook, a.name) }

// pinOfLink names a link's pin. A bpf file system keeps names with dots to itself; interface names may hold them.
func pinOfLink(hook Hook, name string) string {
	return hook.String() + "-" + strings.NewReplacer("%", "%25", ".", "%2e").Replace(name)
}

// softwareKind names links whose local ends hand over large segments, which
// only TCX keeps whole.
func softwareKind(kind string) bool {
	switch kind {
	case "veth", "bridge", "tuntap", "tun", "macvlan", "ipvlan", "bond", "team", "vlan", "vxlan", "geneve", "ifb", "netkit", "wireguard":
		return true
	}
	return false
}

// planAttachments decides where each interface is to be attached, and says why.
// own are the programs that an earlier run of this data path left at work.
func planAttachments(config Config, own map[ebpf.ProgramID]bool) ([]attachment, error) {
	var plan []attachment
	seen := map[string]bool{}
	for _, name := range config.Interfaces {
		if seen[name] {
			return nil, fmt.Errorf("interface %s is named twice; name it once", name)
		}
		seen[name] = true
		l, err := netlink.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w; ip link lists what is there", name, err)
		}
		if err := carriesFrames(l); err != nil {
			return nil, err
		}
		a := attachment{name: name, index: l.Attrs().Index, hook: config.Hook, why: "asked for"}
		a.local = l.Type() == "veth"
		a.jumbo = l.Attrs().MTU > 3498
		taken := foreignXDP(l, own)
		switch {
		case a.hook == HookAuto:
			a.hook, a.why = chooseHook(l, taken)
		case a.hook == HookXDP && taken != "":
			return nil, occupied(name, taken)
		}
		if a.hook == HookTCX {
			a.beside = tcxNeighbours(a.index, own)
		}
		plan = append(plan, a)
	}
	return plan, nil
}

// carriesFrames refuses interfaces whose packets have no Ethernet header: the
// programs would take addresses for types.
func carriesFrames(l netlink.Link) error {
	switch kind := l.Attrs().EncapType; kind {
	case "ether", "loopback", "":
		return nil
	default:
		return fmt.Errorf("interface %s (%s) carries packets without Ethernet headers, link type %q; name Ethernet interfaces only", l.Attrs().Name, l.Type(), kind)
	}
}

// chooseHook is --hook auto.
func chooseHook(l netlink.Link, taken string) (Hook, string) {
	kind := l.Type()
	if softwareKind(kind) {
		return HookTCX, kind + ": large segments of local senders stay whole"
	}
	if taken != "" {
		return HookTCX, "XDP is taken by " + taken
	}
	features, known := xdpFeatures(l.Attrs().Index)
	switch {
	case known && features&xdpRedirects != xdpRedirects:
		return HookTCX, "its driver has no native XDP with redirect"
	case known:
		return HookXDP, "its driver has native XDP: packets before the stack"
	case kind == "device":
		return HookXDP, "a network card (this kernel does not say what its driver can do)"
	}
	return HookTCX, kind + ": not a network card"
}

// foreignXDP names the XDP program on an interface unless it is ours.
func foreignXDP(l netlink.Link, own map[ebpf.ProgramID]bool) string {
	x := l.Attrs().Xdp
	if x == nil || !x.Attached || own[ebpf.ProgramID(x.ProgId)] {
		return ""
	}
	return programName(ebpf.ProgramID(x.ProgId))
}

func occupied(name, taken string) error {
	return fmt.Errorf("interface %s has an XDP program already: %s; use --hook tcx, or remove that one (ip link set dev %[1]s xdp off, or end the process that holds its link)", name, taken)
}

// programName is what people call a program.
func programName(id ebpf.ProgramID) string {
	name := "a program"
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		if info, err := p.Info(); err == nil && info.Name != "" {
			name = info.Name
		}
		p.Close()
	}
	return fmt.Sprintf("%s (program %d)", name, id)
}

// tcxNeighbours names the other programs on an interface's TCX ingress hook.
func tcxNeighbours(index int, own map[ebpf.ProgramID]bool) []string {
	result, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil
	}
	var list []string
	for _, p := range result.Programs {
		if !own[p.ID] {
			list = append(list, programName(p.ID))
		}
	}
	return list
}

// attach puts the programs in place; the maps are complete by now. Links found
// in the pins get the new program at one instant, so no packet sees none.
func (d *Datapath) attach() error {
	wanted := map[string]bool{}
	var made []string
	for i := range d.attached {
		a := &d.attached[i]
		wanted[a.pinName()] = true
		l, how, err := d.attachOne(a)
		if err != nil {
			for _, pin := range made {
				err = errors.Join(err, d.pins.detach(pin))
			}
			return err
		}
		if how == newLink && d.pins != nil {
			made = append(made, a.pinName())
		}
		d.closing = append(d.closing, l.Close)
		d.log.Info(how, "interface", a.name, "hook", a.hook.String(), "why", a.why)
		if len(a.beside) > 0 {
			d.log.Info("other programs are on the same hook", "interface", a.name, "programs", strings.Join(a.beside, ", "), "weir_runs_last", d.config.Last)
		}
	}
	if d.pins != nil {
		for _, pin := range names(d.pins.links()) {
			if !wanted[pin] {
				d.log.Info("detached: no longer asked for", "link", pin)
				if err := d.pins.detach(pin); err != nil {
					return err
				}
			}
		}
	}
	d.inPlace = true
	if !d.config.NoPeers {
		for _, warning := range wakePeers(d.attached, d.keeper.offloaded) {
			d.log.Warn(warning)
		}
	}
	return nil
}

const newLink = "attached"

// program returns a hook's program.
func (d *Datapath) program(hook Hook) *ebpf.Program {
	for _, name := range []string{"weir_tcx", "weir_xdp", "weir_xdp_jumbo"} {
		if p := d.objects[hook].Programs[name]; p != nil {
			return p
		}
	}
	return nil
}

// attachOne takes over the pinned link of an interface, or makes one.
func (d *Datapath) attachOne(a *attachment) (l link.Link, how string, err error) {
	p := d.program(a.hook)
	if d.pins != nil {
		l, err := d.pins.takeOver(a, p)
		if err == nil {
			return l, "program replaced", nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			d.log.Warn("attached anew", "interface", a.name, "because", err.Error())
			if err := d.pins.detach(a.pinName()); err != nil {
				return nil, "", err
			}
		}
	}
	if a.hook == HookTCX {
		anchor := link.Head()
		if d.config.Last {
			anchor = link.Tail()
		}
		if l, err = link.AttachTCX(link.TCXOptions{Interface: a.index, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: anchor}); err != nil {
			return nil, "", fmt.Errorf("attach tcx to %s (Linux 6.6 or newer has it): %w", a.name, err)
		}
	} else if l, err = link.AttachXDP(link.XDPOptions{Interface: a.index, Program: p, Flags: link.XDPDriverMode}); err != nil {
		return nil, "", xdpError(a, err)
	}
	if d.pins != nil {
		if err := l.Pin(d.pins.linkAt(a.pinName())); err != nil {
			l.Close()
			return nil, "", fmt.Errorf("pin the link to %s: %w", a.name, err)
		}
	}
	return l, newLink, nil
}

func xdpError(a *attachment, err error) error {
	if l, e := netlink.LinkByName(a.name); e == nil {
		if taken := foreignXDP(l, nil); taken != "" {
			return occupied(a.name, taken)
		}
	}
	hint := "use --hook tcx"
	if errors.Is(err, ebpf.ErrNotSupported) {
		hint = "the driver has no native XDP; use --hook tcx"
	}
	return fmt.Errorf("attach xdp to %s: %w; %s", a.name, err, hint)
}

// takeOver puts a program into the pinned link of an interface. The error wraps
// os.ErrNotExist when there is none.
func (p *pins) takeOver(a *attachment, program *ebpf.Program) (link.Link, error) {
	l, err := link.LoadPinnedLink(p.linkAt(a.pinName()), nil)
	if err != nil {
		return nil, err
	}
	index, _, err := linkTarget(l)
	if err == nil && index != a.index {
		err = fmt.Errorf("the interface it was attached to is gone")
	}
	if err == nil {
		err = l.Update(program)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// follow attaches again where an interface was made anew, as with a container
// that restarts. The caller holds mu.
func (d *Datapath) follow() {
	if !d.inPlace {
		return
	}
	for i := range d.attached {
		a := &d.attached[i]
		l, err := d.links.LinkByName(a.name)
		if err != nil {
			if !a.gone {
				a.gone = true
				d.log.Warn("interface is gone; attached again when it is back", "interface", a.name)
			}
			continue
		}
		if l.Attrs().Index == a.index {
			a.gone = false
			continue
		}
		if err := d.inNamespace(func() error { return d.attachAgain(a, l) }); err != nil {
			if !a.gone {
				d.log.Error("interface was made anew and cannot be attached; tried again every second", "interface", a.name, "error", err)
			}
			a.gone = true
		}
	}
}

func (d *Datapath) attachAgain(a *attachment, l netlink.Link) error {
	before := a.index
	a.index = l.Attrs().Index
	made, _, err := d.attachOne(a)
	if err != nil {
		a.index = before
		return err
	}
	a.gone = false
	d.closing = append(d.closing, made.Close)
	d.log.Info("attached again", "interface", a.name, "hook", a.hook.String())
	if !d.config.NoPeers {
		for _, warning := range wakePeers([]attachment{*a}, d.keeper.offloaded) {
			d.log.Warn(warning)
		}
	}
	return nil
}

// inNamespace runs f in the data path's network namespace.
func (d *Datapath) inNamespace(f func() error) error {
	return inside(d.namespace, f)
}

// inside runs f in a network namespace. To enter another one than the caller's needs CAP_SYS_ADMIN.
func inside(ns netns.NsHandle, f func() error) error {
	if nexthop.Here(ns) {
		return f()
	}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		ended <- err
	}()
	return <-ended
}

// linkTarget is the interface (0: gone) and the program of a link.
func linkTarget(l link.Link) (index int, program ebpf.ProgramID, err error) {
	info, err := l.Info()
	if err != nil {
		return 0, 0, err
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex), info.Program, nil
	}
	if x := info.TCX(); x != nil {
		return int(x.Ifindex), info.Program, nil
	}
	return 0, info.Program, nil
}

// detach ends one pinned link.
func (p *pins) detach(pin string) error {
	at := p.linkAt(pin)
	if l, err := link.LoadPinnedLink(at, nil); err == nil {
		err = l.Detach()
		l.Close()
		// A link whose interface is gone is detached already.
		if index, _, e := linkTarget(l); err != nil && e == nil && index != 0 {
			return fmt.Errorf("detach %s: %w", pin, err)
		}
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin the link %s: %w", pin, err)
	}
	return nil
}

// programs are those of every pinned link.
func (p *pins) programs() map[ebpf.ProgramID]bool {
	ids := map[ebpf.ProgramID]bool{}
	if p == nil {
		return ids
	}
	for _, pin := range names(p.links()) {
		l, err := link.LoadPinnedLink(p.linkAt(pin), nil)
		if err != nil {
			continue
		}
		if _, id, err := linkTarget(l); err == nil {
			ids[id] = true
		}
		l.Close()
	}
	return ids
}
