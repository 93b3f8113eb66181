package kernelrelay

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

// relayed is one channel in the kernel.
type relayed struct {
	keys       [2]bpf.TurnKey // to the peer, to the client
	bucket     uint32
	allocation uint64
}

// share is the credit of one allocation.
type share struct {
	bucket uint32
	users  int
}

// Add has the kernel relay a channel from now on; its answer to the ChannelBind request must be queued by then. The error
// wraps ErrFull, ErrUnsuited or ErrNone where packets simply stay in user space.
func (o *Relay) Add(c Channel) (id uint32, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, err = o.add(c)
	if err == nil {
		return id, nil
	}
	for name, reason := range map[string]error{"full": ErrFull, "unsuited": ErrUnsuited, hookNone: ErrNone} {
		if errors.Is(err, reason) {
			o.refused[name]++
			return 0, err
		}
	}
	o.refused["failed"]++
	return 0, err
}

func (o *Relay) add(c Channel) (uint32, error) {
	if o.tables == nil || (o.hookName() == hookNone && !o.config.detached) {
		return 0, ErrNone
	}
	if err := suited(&c); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnsuited, err)
	}
	now := time.Now()
	id, ok := o.ids.Take(now)
	if !ok {
		return 0, fmt.Errorf("%w (%d channels)", ErrFull, o.config.MaxChannels)
	}
	bucket, err := o.join(&c, now)
	if err != nil {
		o.ids.Give(id, time.Time{})
		return 0, err
	}
	r := &relayed{bucket: bucket, allocation: c.Allocation}
	r.keys[0] = relayKey(c.Client, c.Listener, c.Number)
	r.keys[1] = relayKey(c.Peer, c.Relay, 0)
	o.enter(id, 0, &c, r, c.Relay, c.Peer)
	o.enter(id, 1, &c, r, c.Listener, c.Client)
	for direction := range r.keys {
		index := 2*id + uint32(direction)
		if err := o.tables.Maps[bpf.TurnMapTurnKeys].Update(r.keys[direction], index, ebpf.UpdateNoExist); err != nil {
			o.forget(id, r, direction, now)
			if errors.Is(err, ebpf.ErrKeyExist) {
				return 0, fmt.Errorf("%w: channel %#x of %s at %s, or its peer %s at relay %s, is there already", ErrUnsuited, c.Number, c.Client, c.Listener, c.Peer, c.Relay)
			}
			return 0, fmt.Errorf("enter channel %#x of %s: %w", c.Number, c.Client, err)
		}
	}
	o.channels[id] = r
	return id, nil
}

// suited brings addresses to their plain form and refuses what the programs do not relay.
func suited(c *Channel) error {
	for _, a := range []*netip.AddrPort{&c.Client, &c.Listener, &c.Relay, &c.Peer} {
		*a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		switch ip := a.Addr(); {
		case !ip.IsValid() || ip.IsUnspecified() || a.Port() == 0:
			return fmt.Errorf("address %s is not one of a packet", a)
		case ip.IsMulticast() || ip.IsLinkLocalUnicast():
			return fmt.Errorf("address %s is multicast or link-local", a)
		}
	}
	switch {
	case c.Number < 0x4000 || c.Number > 0x4fff:
		return fmt.Errorf("no channel number: %#x", c.Number)
	case c.Client.Addr().Is4() != c.Listener.Addr().Is4() || c.Relay.Addr().Is4() != c.Peer.Addr().Is4():
		return errors.New("addresses of both families in one direction")
	}
	return nil
}

func relayKey(src, dst netip.AddrPort, number uint16) bpf.TurnKey {
	return bpf.TurnKey{
		Src: maps.AddressWords(src.Addr()), Dst: maps.AddressWords(dst.Addr()),
		Sport: maps.Swap16(src.Port()), Dport: maps.Swap16(dst.Port()), Number: number,
	}
}

// enter writes the relay entry of one direction, which no program reads yet.
func (o *Relay) enter(id, direction uint32, c *Channel, r *relayed, src, dst netip.AddrPort) {
	index := 2*id + direction
	entry := bpf.TurnRelayEntry{
		Key: r.keys[direction], Src: maps.AddressWords(src.Addr()), Dst: maps.AddressWords(dst.Addr()),
		Sport: maps.Swap16(src.Port()), Dport: maps.Swap16(dst.Port()), Number: c.Number, Version: 6, State: bpf.EntryOpen,
		Bucket: r.bucket, Hop: math.MaxUint32,
	}
	if dst.Addr().Is4() {
		entry.Version = 4
	}
	if o.isLocal(dst.Addr()) {
		entry.Local = 1
	}
	if c.BytesPerSecond > 0 {
		entry.Cost, entry.Depth = price(c.BytesPerSecond, c.Burst)
	}
	o.tables.entries[index] = entry
	for i := int(index); i < len(o.tables.relayed); i += len(o.tables.entries) {
		o.tables.relayed[i] = bpf.TurnRelayed{}
	}
}

// price is what a byte costs in 65536ths of a nanosecond of credit, and how much credit there is at most in nanoseconds.
func price(rate, burst uint64) (cost, depth uint64) {
	if burst == 0 {
		burst = max(rate/4, 64<<10)
	}
	cost = max(uint64(float64(time.Second)*65536/float64(rate)), 1)
	return cost, uint64(min(float64(burst)*float64(time.Second)/float64(rate), 1<<60))
}

// isLocal says whether packets to an address end in this machine.
func (o *Relay) isLocal(a netip.Addr) bool {
	if !o.onLoopback {
		return false // no one asks
	}
	routes, err := o.links.RouteGet(net.IP(a.AsSlice()))
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// join finds the bucket of the channel's allocation.
func (o *Relay) join(c *Channel, now time.Time) (uint32, error) {
	if c.BytesPerSecond == 0 {
		return 0, nil
	}
	s := o.shares[c.Allocation]
	if s == nil {
		bucket, ok := o.buckets.Take(now)
		if !ok {
			return 0, fmt.Errorf("%w (%d limits)", ErrFull, o.config.MaxChannels)
		}
		o.tables.full[bucket] = 0
		s = &share{bucket: bucket}
		o.shares[c.Allocation] = s
	}
	s.users++
	return s.bucket, nil
}

func (o *Relay) leave(r *relayed, now time.Time) {
	s := o.shares[r.allocation]
	if s == nil || s.bucket != r.bucket {
		return
	}
	if s.users--; s.users == 0 {
		delete(o.shares, r.allocation)
		o.buckets.Give(s.bucket, now)
	}
}

// forget takes back the first keys of a channel, and its indexes.
func (o *Relay) forget(id uint32, r *relayed, keys int, now time.Time) {
	for direction := range keys {
		if err := o.tables.Maps[bpf.TurnMapTurnKeys].Delete(r.keys[direction]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			o.log.Error("a channel stays in the kernel's table", "error", err)
		}
		maps.StoreByte(&o.tables.entries[2*id+uint32(direction)].State, bpf.EntryOff)
	}
	o.leave(r, now)
	o.ids.Give(id, now)
}

// Permit says whether the peer may send to the client (its permission, RFC 8656 section 9).
func (o *Relay) Permit(id uint32, toClient bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.channels[id] == nil {
		return errGone
	}
	state := uint8(bpf.EntryShut)
	if toClient {
		state = bpf.EntryOpen
	}
	maps.StoreByte(&o.tables.entries[2*id+1].State, state)
	return nil
}

// Remove ends the relaying of a channel and returns its totals. The number is not given again within a second.
func (o *Relay) Remove(id uint32) (up, down Traffic, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.channels[id]
	if r == nil {
		return up, down, errGone
	}
	delete(o.channels, id)
	o.forget(id, r, len(r.keys), time.Now())
	return o.traffic(2 * id), o.traffic(2*id + 1), nil
}

// Counters calls yield with what each channel relayed since Add: up to the peer, down to the client. yield must not call
// the Relay.
func (o *Relay) Counters(yield func(id uint32, up, down Traffic)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tables == nil {
		return nil
	}
	for id := range o.channels {
		yield(id, o.traffic(2*id), o.traffic(2*id+1))
	}
	return nil
}

// traffic sums the counters of an entry over the CPUs; they are read where the programs write them.
func (o *Relay) traffic(index uint32) (t Traffic) {
	var last uint64
	for i := int(index); i < len(o.tables.relayed); i += len(o.tables.entries) {
		r := &o.tables.relayed[i]
		t.Packets += atomic.LoadUint64(&r.Packets)
		t.Bytes += atomic.LoadUint64(&r.Bytes)
		last = max(last, atomic.LoadUint64(&r.Last))
	}
	if last > 0 && !o.clock.Manual {
		t.Last = time.Now().Add(-time.Duration(uint64(maps.BootTicks(o.clock.Tick))-last) * o.clock.Tick)
	}
	return t
}
