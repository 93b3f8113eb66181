package attach

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/weir-lb/weir/api/v1"
)

// Hook says where the program runs.
type Hook uint8

const (
	// HookAuto chooses per interface: TCX where segmentation offload must survive
	// (veth, bridge, tun), XDP on network cards.
	HookAuto Hook = iota
	HookXDP
	HookTCX
)

func (h Hook) String() string { return [...]string{"auto", "xdp", "tcx"}[h] }

// ParseHook reads auto, xdp or tcx.
func ParseHook(s string) (Hook, error) {
	for h := HookAuto; h <= HookTCX; h++ {
		if h.String() == s {
			return h, nil
		}
	}
	return HookAuto, fmt.Errorf("no hook %q; write auto, xdp or tcx", s)
}

// Interface is one interface and the hook chosen for it.
type Interface struct {
	Name   string
	Index  int
	Hook   Hook
	Why    string
	Local  bool // senders on this machine leave checksums to us
	Jumbo  bool
	Others []string // other programs on the same hook
	Gone   bool     // the interface is not there now
}

// PinName is the name of its link among the pins.
func (a *Interface) PinName() string { return PinName(a.Hook, a.Name) }

// PinName names a link's pin. A bpf file system keeps names with dots to itself; interface names may hold them.
func PinName(hook Hook, name string) string {
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

// Plan decides where each interface is to be attached, and says why.
// own are the programs that an earlier run of this data path left at work.
func Plan(names []string, hook Hook, own map[ebpf.ProgramID]bool) ([]Interface, error) {
	var plan []Interface
	seen := map[string]bool{}
	for _, name := range names {
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
		a := Interface{Name: name, Index: l.Attrs().Index, Hook: hook, Why: "requested"}
		a.Local = l.Type() == "veth"
		a.Jumbo = l.Attrs().MTU > 3498
		taken := foreignXDP(l, own)
		switch {
		case a.Hook == HookAuto:
			a.Hook, a.Why = chooseHook(l, taken)
		case a.Hook == HookXDP && taken != "":
			return nil, occupied(name, taken)
		}
		if a.Hook == HookTCX {
			a.Others = TCXNeighbours(a.Index, own)
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
	features, known := XDPFeatures(l.Attrs().Index)
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

// TCXNeighbours names the other programs on an interface's TCX ingress hook.
func TCXNeighbours(index int, own map[ebpf.ProgramID]bool) []string {
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

// InterfaceReport is one attached interface.
type InterfaceReport = v1.EBPFInterface

func (a *Interface) Report() InterfaceReport {
	return InterfaceReport{Name: a.Name, Hook: a.Hook.String(), Why: a.Why, Others: a.Others, Gone: a.Gone}
}
