package kernelnat

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// Flow is an established flow of the NAT.
type Flow struct {
	Client, VIP netip.AddrPort // as the client sends
	// Local and Backend are what the NAT sends with. Where Local has no address, it is the one that the kernel takes for Backend.
	Local, Backend netip.AddrPort
	// Target is of NewTarget: its datagrams are counted together.
	Target uint32
	// Epoch in which steering has chosen the backend.
	Epoch uint32
	// RepliesOnly leaves datagrams from the client to user space.
	RepliesOnly bool
}

// Traffic is what the kernel forwarded in one direction.
type Traffic struct {
	Packets, Bytes uint64 // UDP payload
}

// refusal is why a flow stays in user space; reason is a key of Report.Refused.
type refusal struct {
	reason string
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func unsuited(format string, args ...any) error {
	return &refusal{"unsuited", fmt.Errorf(format, args...)}
}

// Epoch is the present one. Read it before the decision that Add or Renew is for.
func (t *Table) Epoch() uint32 { return atomic.LoadUint32(&t.control.Epoch) }

// Advance begins an epoch: the kernel forwards no flow until it was renewed.
func (t *Table) Advance() { atomic.AddUint32(&t.control.Epoch, 1) }

// Suspend leaves all datagrams of a direction to user space while it is true.
func (t *Table) Suspend(toBackends, toClients bool) {
	for i, on := range []bool{toBackends, toClients} {
		value := uint32(0)
		if on {
			value = 1
		}
		atomic.StoreUint32(&t.control.Suspended[i], value)
	}
}

// Add has the kernel forward a flow from now on and returns its id, above 0. After an error the flow stays in user space.
func (t *Table) Add(f Flow) (id uint32, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, err = t.addLocked(f)
	if err == nil {
		t.flows++
		return id, nil
	}
	reason := "failed"
	if r := (*refusal)(nil); errors.As(err, &r) {
		reason = r.reason
	}
	t.refused[reason]++
	return 0, err
}

func (t *Table) addLocked(f Flow) (uint32, error) {
	if t.closed || t.blind.Load() {
		return 0, errors.New("flows are no longer forwarded in the kernel")
	}
	if f.Client.Addr().Unmap().Is4() != f.Backend.Addr().Unmap().Is4() {
		return 0, unsuited("client %s and backend %s are of two address families", f.Client, f.Backend)
	}
	routes := t.routes.Load() // first: they may change while they are looked up
	source := f.Local.Addr()
	if source.IsUnspecified() {
		source = netip.Addr{}
	}
	to, err := t.hopLocked(routes, f.Backend.Addr(), source)
	if err != nil {
		return 0, err
	}
	if !source.IsValid() {
		f.Local = netip.AddrPortFrom(to.source, f.Local.Port())
	}
	back, err := t.hopLocked(routes, f.Client.Addr(), f.VIP.Addr())
	if err != nil {
		return 0, err
	}
	for _, h := range []hop{to, back} {
		if err := t.attachLocked(h); err != nil {
			return 0, err
		}
	}
	id, ok := t.ids.Take(time.Now())
	if !ok {
		return 0, &refusal{"full", fmt.Errorf("the kernel forwards %d flows already", t.config.MaxFlows)}
	}
	t.lookedUp[id] = routes
	atomic.StoreUint64(&t.used[id], uint64(maps.BootTicks(t.clock.Tick)))
	t.enter(2*id, &f, to, f.Client, f.VIP, f.Local, f.Backend)
	t.enter(2*id+1, &f, back, f.Backend, f.Local, f.VIP, f.Client)
	for at := 2*id + 1; ; at-- {
		if err := t.collection.Maps[bpf.UDPNATMapUdpnatKeys].Update(t.entries[at].Key, at, ebpf.UpdateNoExist); err != nil {
			t.deleteLocked(id, at)
			return 0, fmt.Errorf("enter a flow of %s to %s: %w", f.Client, f.Backend, err)
		}
		if at == 2*id || f.RepliesOnly {
			return id, nil
		}
	}
}

// enter writes one direction, which no program reads yet: from and at as it comes in, source and to as it leaves.
func (t *Table) enter(index uint32, f *Flow, h hop, from, at, source, to netip.AddrPort) {
	e := bpf.UDPNATEntry{
		Src: maps.AddressWords(source.Addr()), Dst: maps.AddressWords(to.Addr()),
		Sport: maps.Swap16(source.Port()), Dport: maps.Swap16(to.Port()),
		Epoch: f.Epoch, Ifindex: uint32(h.index), Mtu: h.mtu, Gateway: maps.AddressWords(h.gateway), Target: f.Target,
	}
	e.Key.Src, e.Key.Dst = maps.AddressWords(from.Addr()), maps.AddressWords(at.Addr())
	e.Key.Sport, e.Key.Dport, e.Key.Proto = maps.Swap16(from.Port()), maps.Swap16(at.Port()), unix.IPPROTO_UDP
	t.entries[index] = e
}

// Renew has the kernel forward a flow in an epoch, whose decision is the same as the flow's. False: the flow's path may have
// changed; remove it and add it again.
func (t *Table) Renew(id, epoch uint32) bool {
	forward, back := &t.entries[2*id], &t.entries[2*id+1]
	if atomic.LoadUint32(&back.Failed)|atomic.LoadUint32(&forward.Failed) != 0 {
		return false
	}
	if routes := t.routes.Load(); t.lookedUp[id] != routes {
		if !t.samePath(routes, forward) || !t.samePath(routes, back) {
			return false
		}
		t.lookedUp[id] = routes
	}
	if atomic.LoadUint32(&back.Epoch) != epoch {
		atomic.StoreUint32(&forward.Epoch, epoch)
		atomic.StoreUint32(&back.Epoch, epoch)
	}
	return true
}

// samePath reports whether an entry leaves as the present routes say.
func (t *Table) samePath(routes uint32, e *bpf.UDPNATEntry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, err := t.hopLocked(routes, maps.Address(e.Dst), maps.Address(e.Src))
	return err == nil && !t.blind.Load() && t.attachLocked(h) == nil && uint32(h.index) == e.Ifindex && h.mtu == e.Mtu && maps.AddressWords(h.gateway) == e.Gateway
}

// Remove leaves a flow to user space. Its id is not used again within a second.
func (t *Table) Remove(id uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if atomic.LoadUint32(&t.entries[2*id].Failed) != 0 { // the path's MTU may be another one
		t.forgetLocked(&t.entries[2*id])
		t.forgetLocked(&t.entries[2*id+1])
	}
	t.deleteLocked(id, 2*id)
	t.flows--
}

// deleteLocked takes a flow out of the table, whose directions from an index on were not entered or are to go too.
func (t *Table) deleteLocked(id, from uint32) {
	for at := 2*id + 1; at >= from; at-- {
		atomic.StoreUint32(&t.entries[at].Epoch, 0)
		if err := t.collection.Maps[bpf.UDPNATMapUdpnatKeys].Delete(t.entries[at].Key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.log.Error("a flow stays in the kernel's table", "error", err)
		}
	}
	t.ids.Give(id, time.Now())
}

// Idle is the time since the kernel forwarded the last datagram of a flow, or since Add; one tick of the kernel precise.
func (t *Table) Idle(id uint32) time.Duration {
	ticks := uint64(maps.BootTicks(t.clock.Tick)) - atomic.LoadUint64(&t.used[id])
	if int64(ticks) < 0 { // the program's clock may be a tick ahead
		return 0
	}
	return time.Duration(ticks) * t.clock.Tick
}

// NewTarget returns a number for Flow.Target, above 0; false: there are too many.
func (t *Table) NewTarget() (uint32, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.targets.Take(time.Now())
}

// FreeTarget gives a number back that no flow has any longer.
func (t *Table) FreeTarget(target uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.targets.Give(target, time.Now())
}

// Traffic is what was forwarded for a target since Open, also while its number was another one's.
func (t *Table) Traffic(target uint32) (toBackend, toClients Traffic) {
	t.memory.Step(func() {
		for i := int(target); i < len(t.counts); i += maxTargets {
			n := &t.counts[i]
			toBackend.Packets += atomic.LoadUint64(&n.Packets[0])
			toBackend.Bytes += atomic.LoadUint64(&n.Bytes[0])
			toClients.Packets += atomic.LoadUint64(&n.Packets[1])
			toClients.Bytes += atomic.LoadUint64(&n.Bytes[1])
		}
	})
	return toBackend, toClients
}
