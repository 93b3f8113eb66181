package ebpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// attachment is one interface and the hook chosen for it.
type attachment struct {
	name  string
	index int
	hook  Hook
	why   string
	local bool // senders on this machine leave checksums to us
	jumbo bool
}

// softwareKinds are links whose local ends hand over large segments, which
// only TCX keeps whole.
func softwareKind(kind string) bool {
	switch kind {
	case "veth", "bridge", "tuntap", "tun", "macvlan", "ipvlan", "bond", "team", "vlan", "vxlan", "geneve", "ifb", "netkit", "wireguard":
		return true
	}
	return false
}

// planAttachments decides where each interface is to be attached, and says why.
func planAttachments(config Config) ([]attachment, error) {
	var plan []attachment
	for _, name := range config.Interfaces {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		a := attachment{name: name, index: l.Attrs().Index, hook: config.Hook, why: "asked for"}
		a.local = l.Type() == "veth"
		a.jumbo = l.Attrs().MTU > 3498
		if a.hook == HookAuto {
			a.hook, a.why = HookXDP, "a network card: packets before the stack"
			if softwareKind(l.Type()) {
				a.hook, a.why = HookTCX, l.Type()+": large segments of local senders stay whole"
			}
		}
		plan = append(plan, a)
	}
	return plan, nil
}

// attach puts the programs in place; the maps are complete by now.
func (d *Datapath) attach() error {
	for _, a := range d.attached {
		l, err := d.attachOne(a)
		if err != nil {
			return err
		}
		d.closing = append(d.closing, l.Close)
		d.log.Info("attached", "interface", a.name, "hook", a.hook.String(), "why", a.why)
	}
	if !d.config.NoPeers {
		for _, warning := range wakePeers(d.attached) {
			d.log.Warn(warning)
		}
	}
	return nil
}

// program returns a hook's program.
func (d *Datapath) program(hook Hook) *ebpf.Program {
	for _, name := range []string{"weir_tcx", "weir_xdp", "weir_xdp_jumbo"} {
		if p := d.objects[hook].Programs[name]; p != nil {
			return p
		}
	}
	return nil
}

func (d *Datapath) attachOne(a attachment) (link.Link, error) {
	p := d.program(a.hook)
	if a.hook == HookTCX {
		l, err := link.AttachTCX(link.TCXOptions{Interface: a.index, Program: p, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return nil, fmt.Errorf("attach tcx to %s: %w", a.name, err)
		}
		return l, nil
	}
	l, err := link.AttachXDP(link.XDPOptions{Interface: a.index, Program: p, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("attach xdp to %s: %w%s", a.name, err, xdpHint(err))
	}
	return l, nil
}

func xdpHint(err error) string {
	if errors.Is(err, ebpf.ErrNotSupported) {
		return "; the driver has no native XDP, use --hook tcx"
	}
	return "; another XDP program may be there (ip link show), or use --hook tcx"
}
