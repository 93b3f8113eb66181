package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Attach puts a program on the hook of an interface; last: behind the TCX programs that are there, instead of before them.
func (a *Interface) Attach(p *ebpf.Program, last bool) (l link.Link, err error) {
	if a.Hook == HookTCX {
		anchor := link.Head()
		if last {
			anchor = link.Tail()
		}
		if l, err = link.AttachTCX(link.TCXOptions{Interface: a.Index, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: anchor}); err != nil {
			return nil, fmt.Errorf("attach tcx to %s (Linux 6.6 or newer has it): %w", a.Name, err)
		}
	} else if l, err = link.AttachXDP(link.XDPOptions{Interface: a.Index, Program: p, Flags: link.XDPDriverMode}); err != nil {
		return nil, xdpError(a, err)
	}
	return l, nil
}

func xdpError(a *Interface, err error) error {
	if l, e := netlink.LinkByName(a.Name); e == nil {
		if taken := foreignXDP(l, nil); taken != "" {
			return occupied(a.Name, taken)
		}
	}
	hint := "use --hook tcx"
	if errors.Is(err, ebpf.ErrNotSupported) {
		hint = "the driver has no native XDP; use --hook tcx"
	}
	return fmt.Errorf("attach xdp to %s: %w; %s", a.Name, err, hint)
}

// TakeOver puts a program into the link of an interface that is pinned at a path. The error wraps
// os.ErrNotExist when there is none.
func (a *Interface) TakeOver(pin string, program *ebpf.Program) (link.Link, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return nil, err
	}
	index, _, err := linkTarget(l)
	if err == nil && index != a.Index {
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

// Detach ends one pinned link.
func Detach(at string) error {
	if l, err := link.LoadPinnedLink(at, nil); err == nil {
		err = l.Detach()
		l.Close()
		// A link whose interface is gone is detached already.
		if index, _, e := linkTarget(l); err != nil && e == nil && index != 0 {
			return fmt.Errorf("detach %s: %w", filepath.Base(at), err)
		}
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unpin the link %s: %w", filepath.Base(at), err)
	}
	return nil
}

// Programs are the programs of pinned links.
func Programs(links []string) map[ebpf.ProgramID]bool {
	ids := map[ebpf.ProgramID]bool{}
	for _, at := range links {
		l, err := link.LoadPinnedLink(at, nil)
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
