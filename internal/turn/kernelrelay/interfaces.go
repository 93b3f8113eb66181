package kernelrelay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// plan chooses the hook of each interface. The caller holds mu.
func (o *Relay) plan() (err error) {
	o.attached, err = attach.Plan(o.config.Interfaces, o.config.Hook, nil)
	o.attaches = make([]link.Link, len(o.attached))
	return err
}

// none gives up where that is allowed: the reason becomes every interface's.
func (o *Relay) none(err error) error {
	if o.config.Hook != attach.HookAuto {
		return err
	}
	for i := range o.attached {
		o.attached[i].Why = err.Error()
	}
	o.log.Warn("no relaying in the kernel", "because", err)
	return nil
}

// attach attaches the program of the chosen hook, with HookAuto that of the next best one, or none.
func (o *Relay) attach(i int) error {
	a := &o.attached[i]
	err := o.attachTo(i)
	if err != nil && o.config.Hook == attach.HookAuto && a.Hook == attach.HookXDP {
		o.log.Info("no XDP", "interface", a.Name, "because", err)
		a.Hook, a.Why = attach.HookTCX, "no XDP: "+err.Error()
		err = o.attachTo(i)
	}
	if err != nil && o.config.Hook == attach.HookAuto {
		a.Why = err.Error()
		o.log.Warn("no relaying in the kernel", "interface", a.Name, "because", err)
		return nil
	}
	if err != nil {
		return err
	}
	o.log.Info("relaying channels in the kernel", "interface", a.Name, "hook", a.Hook.String(), "why", a.Why)
	if a.Hook == attach.HookXDP {
		for _, warning := range attach.WakePeers([]attach.Interface{*a}, o.noteGRO) {
			o.log.Warn(warning, "event", "attach_warning")
		}
		o.findOuts()
	}
	return nil
}

func (o *Relay) attachTo(i int) error {
	a := &o.attached[i]
	c, err := o.object(a.Hook)
	if err != nil {
		return err
	}
	l, err := a.Attach(relayProgram(c), false)
	if err != nil {
		return err
	}
	o.attaches[i] = l
	o.onLoopback = o.onLoopback || a.Index == bpf.Loopback
	return nil
}

// noteGRO turns GRO of a veth's other end off again at the end.
func (o *Relay) noteGRO(index int) error {
	inode := attach.NamespaceID()
	o.undo = append(o.undo, func() {
		err := attach.InNamespaceOf(inode, func() error {
			l, err := netlink.LinkByIndex(index)
			if err != nil {
				return nil // the interface is gone, and the setting with it
			}
			return attach.SetGRO(l.Attrs().Name, false)
		})
		if err != nil && !errors.Is(err, attach.ErrNoNamespace) {
			o.log.Warn("GRO stays on", "interface_index", index, "error", err)
		}
	})
	return nil
}

// openRoutes lets programs request routes as for packets of this machine's own. The kernel answers them only for an interface
// that forwards: lo, through which no other program sends, is made to, so the machine needs to be no router.
func (o *Relay) openRoutes() error {
	for _, family := range []string{"ipv4", "ipv6"} {
		at := "/proc/sys/net/" + family + "/conf/lo/forwarding"
		was, err := os.ReadFile(at)
		if err != nil {
			if family == "ipv6" && errors.Is(err, os.ErrNotExist) {
				continue // the kernel has none
			}
			return fmt.Errorf("request routes: %w", err)
		}
		if strings.TrimSpace(string(was)) != "0" {
			continue
		}
		if err := os.WriteFile(at, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("routes can be requested only where lo forwards, so set net.%s.conf.lo.forwarding=1: %w", family, err)
		}
		o.undo = append(o.undo, func() {
			if err := attach.InNamespace(o.namespace, func() error { return os.WriteFile(at, was, 0o644) }); err != nil {
				o.log.Warn("lo still forwards", "setting", at, "error", err)
			}
		})
	}
	return nil
}

// xdpTarget: the driver takes frames that XDP redirects to it (NETDEV_XDP_ACT_NDO_XMIT).
const xdpTarget = 4

// findOuts lists the interfaces that XDP may redirect to: a frame for another one would vanish. The caller holds mu and is in
// the namespace.
func (o *Relay) findOuts() {
	if o.objects[attach.HookXDP] == nil {
		return
	}
	list, err := o.links.LinkList()
	if err != nil {
		o.log.Warn("list interfaces", "error", err)
		return
	}
	outs := o.objects[attach.HookXDP].Maps[bpf.TurnMapTurnOuts]
	for _, l := range list {
		index := uint32(l.Attrs().Index)
		if features, known := attach.XDPFeatures(int(index)); known && features&xdpTarget != 0 || !known && o.onXDP(int(index)) {
			err = outs.Put(index, index)
		} else if err = outs.Delete(index); errors.Is(err, ebpf.ErrKeyNotExist) {
			err = nil
		}
		if err != nil {
			o.log.Warn("note where XDP may redirect to", "interface", l.Attrs().Name, "error", err)
		}
	}
}

func (o *Relay) onXDP(index int) bool {
	if o.config.detached && index == o.config.home {
		return true
	}
	for i := range o.attached {
		if o.attached[i].Index == index && o.attached[i].Hook == attach.HookXDP && o.attaches[i] != nil {
			return true
		}
	}
	return false
}

const checkEvery = 4 // ticks of watch

// watch looks after interfaces until ctx ends: one that was made again is attached again.
func (o *Relay) watch(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for tick := 0; ; tick++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if tick%checkEvery == 0 {
			o.keepNeighbours()
		}
		if !o.stale.Swap(false) {
			continue
		}
		if err := attach.InNamespace(o.namespace, func() error {
			o.mu.Lock()
			defer o.mu.Unlock()
			if ctx.Err() == nil {
				o.attachAgain()
				o.findOuts()
			}
			return nil
		}); err != nil {
			o.log.Error("look after interfaces", "error", err)
		}
	}
}

// keepNeighbours has the kernel ask again for those neighbours that only programs send to: it would take no notice of one
// that is gone, and forget the others.
func (o *Relay) keepNeighbours() {
	used := o.usedHops()
	if len(used) == 0 {
		return
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := o.links.NeighList(0, family)
		if err != nil {
			o.log.Warn("list neighbours", "error", err)
			return
		}
		for _, n := range list {
			if n.State != unix.NUD_STALE || len(n.HardwareAddr) != 6 || !used[hopKey{uint32(n.LinkIndex), [6]byte(n.HardwareAddr)}] {
				continue
			}
			poke := &netlink.Neigh{LinkIndex: n.LinkIndex, Family: family, IP: n.IP, Flags: netlink.NTF_USE, State: unix.NUD_NONE}
			if err := o.links.NeighSet(poke); err != nil {
				o.log.Debug("request a neighbour again", "address", n.IP, "error", err)
			}
		}
	}
}

type hopKey struct {
	index uint32
	mac   [6]byte
}

// usedHops are the next hops of this and the last stretch of time.
func (o *Relay) usedHops() map[hopKey]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tables == nil || len(o.channels) == 0 {
		return nil
	}
	used := map[hopKey]bool{}
	stretch := uint32(uint64(maps.BootTicks(o.clock.Tick)) >> o.clock.HopShift())
	for i := range o.tables.hops {
		if h := &o.tables.hops[i]; h.Stamp != 0 && stretch-h.Stamp <= 2 {
			used[hopKey{h.Out.Ifindex, h.Out.Dmac}] = true
		}
	}
	return used
}

func (o *Relay) attachAgain() {
	for i := range o.attached {
		a := &o.attached[i]
		l, err := o.links.LinkByName(a.Name)
		if err != nil {
			if !a.Gone {
				o.log.Warn("interface is gone; attached again when it is back", "interface", a.Name)
			}
			a.Gone = true
			continue
		}
		if l.Attrs().Index == a.Index {
			a.Gone = false
			continue
		}
		if o.attaches[i] != nil {
			o.attaches[i].Close()
			o.attaches[i] = nil
		}
		a.Index = l.Attrs().Index
		if err := o.attach(i); err != nil {
			o.log.Error("interface was made again and cannot be attached", "event", "relay_interface_cannot_be_attached", "interface", a.Name, "error", err)
			continue
		}
		a.Gone = false
	}
}
