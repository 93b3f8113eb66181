package ebpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netns"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// datagram names the fragments that belong together.
type datagram [bpf.DatagramKeyBytes]byte

// heldFrame is a fragment that waits for the first of its datagram.
type heldFrame struct {
	ifindex uint32
	frame   []byte
	since   time.Time
}

// waitingDatagram is a datagram whose first fragment has not come.
type waitingDatagram struct {
	number      int32  // of its entry in the fragment table
	fingerprint uint64 // of that entry
	frames      []heldFrame
}

// holder keeps early fragments.
//
// Bound: limit fragments (limits.held_fragments). Beyond that the source that holds most datagrams loses its oldest one,
// which the fragment table then knows as lost; counter: FragmentEvictions.Held. The program bounds what is on its way
// here too (holdRoom). What waits longer than ttl is dropped.
type holder struct {
	program *ebpf.Program
	hops    *nexthop.Table
	tables  *maps.Tables
	limit   int
	ttl     time.Duration
	expired time.Time // when expire ran last

	waiting  map[datagram]*waitingDatagram
	byNumber map[int32]datagram
	order    evict.Order[evict.Source] // of waiting, by number
	count    int                       // frames
	evicted  *atomic.Uint64
}

func newHolder(t *maps.Tables, limits lb.Limits, evicted *atomic.Uint64) *holder {
	return &holder{
		tables: t, limit: limits.HeldFragments, ttl: limits.FragmentTTL, evicted: evicted,
		waiting: map[datagram]*waitingDatagram{}, byNumber: map[int32]datagram{},
	}
}

// holdRoom is how many early fragments the program may give away: those that are held, and those on their way to the
// holder, which evicts others for them.
func holdRoom(limits lb.Limits) uint32 {
	if limits.HeldFragments == 0 {
		return 0
	}
	return uint32(limits.HeldFragments + max(limits.HeldFragments/4, 1))
}

// runHeld takes early fragments from the ring until ctx ends and gives them
// back once their first one went on.
func (d *Datapath) runHeld(ctx context.Context) error {
	d.mu.Lock()
	t, limits, program := d.tables, d.snapshot, d.injector
	d.mu.Unlock()
	if t == nil {
		d.holds.Store(true) // nothing, but that it can
		<-ctx.Done()
		return nil
	}
	// TEST_RUN looks interfaces up in the calling thread's namespace. Never
	// unlocked: the thread ends with the goroutine.
	runtime.LockOSThread()
	if !nexthop.Here(d.namespace) {
		if err := netns.Set(d.namespace); err != nil {
			return fmt.Errorf("enter the network namespace for held fragments: %w", err)
		}
	}
	r, err := ringbuf.NewReader(t.Maps[bpf.MapEvents])
	if err != nil {
		return fmt.Errorf("read the ring of events: %w", err)
	}
	defer context.AfterFunc(ctx, func() { r.Flush() })() // SetDeadline would wait for Read itself
	defer r.Close()
	d.holds.Store(true)
	h := newHolder(t, limits.Limits, &d.heldEvicted)
	h.program, h.hops = program, d.hops
	for ctx.Err() == nil {
		r.SetDeadline(time.Now().Add(h.ttl / 4))
		record, err := r.Read()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			h.expire(time.Now())
		case errors.Is(err, ringbuf.ErrFlushed): // ctx ended
		case err != nil:
			return fmt.Errorf("read the ring of events: %w", err)
		default:
			h.event(record.RawSample, time.Now())
		}
	}
	return nil
}

// event takes a fragment in, or gives those of a datagram back. The program writes struct event (maps.h), then the key of the
// datagram, then the frame.
func (h *holder) event(b []byte, now time.Time) {
	if len(b) < bpf.EventBytes+bpf.DatagramKeyBytes {
		return
	}
	event := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	key := datagram(b[bpf.EventBytes:])
	switch event(bpf.EventKindAt) {
	case bpf.EventNeighbour:
		var a [16]byte
		copy(a[:], b[bpf.EventBytes+16:])
		h.hops.Probe(netip.AddrFrom16(a).Unmap())
	case bpf.EventRelease:
		if w := h.waiting[key]; w != nil {
			for _, f := range w.frames {
				h.inject(f)
			}
			h.forget(key)
		}
	case bpf.EventHeld:
		n := int(event(bpf.EventCapturedAt))
		number := event(bpf.EventBackendAt)
		if n > len(b)-bpf.EventBytes-bpf.DatagramKeyBytes || int(number) >= len(h.tables.Datagrams) {
			return
		}
		f := heldFrame{
			ifindex: event(bpf.EventIfindexAt),
			frame:   append([]byte(nil), b[bpf.EventBytes+bpf.DatagramKeyBytes:][:n]...), since: now,
		}
		// The first one may have come meanwhile, and its event before this one. If not, its event is still to come: the
		// program writes the entry before it.
		if h.tables.Datagrams[number].Kind < bpf.FragmentWaiting {
			h.inject(f)
			return
		}
		h.hold(key, int32(number), f)
	}
	if now.Sub(h.expired) > h.ttl/4 {
		h.expire(now)
	}
}

// hold keeps a fragment, and evicts others where there are too many then.
func (h *holder) hold(key datagram, number int32, f heldFrame) {
	w := h.waiting[key]
	if w == nil || w.number != number {
		if other, ok := h.byNumber[number]; ok {
			h.forget(other) // its entry was evicted
		}
		if w == nil {
			w = &waitingDatagram{}
		} else { // its entry was evicted, and it came again; or two CPUs entered it at once
			h.order.Remove(w.number)
			delete(h.byNumber, w.number)
		}
		w.number, w.fingerprint = number, atomic.LoadUint64(h.fingerprint(number))
		h.waiting[key], h.byNumber[number] = w, key
		h.order.Add(number, evict.SourceOf16([16]byte(key[:16])))
	}
	w.frames = append(w.frames, f)
	h.count++
	for h.count > h.limit {
		number, _ := h.order.First()
		h.evict(h.byNumber[number])
	}
}

func (h *holder) fingerprint(number int32) *uint64 {
	return &h.tables.Fragments[number/bpf.BucketSlots].Slots[number%bpf.BucketSlots].Fingerprint
}

// evict makes a datagram a lost one: later fragments of it are not held any more.
func (h *holder) evict(key datagram) {
	w := h.waiting[key]
	h.evicted.Add(uint64(len(w.frames)))
	h.forget(key)
	entry := &h.tables.Datagrams[w.number]
	// Kind, Reason, Back and Held are one word, so that the program's last change of them is not undone.
	word := (*uint32)(unsafe.Pointer(&entry.Kind))
	was := atomic.LoadUint32(word)
	if was&0xff != bpf.FragmentWaiting || atomic.LoadUint64(h.fingerprint(w.number)) != w.fingerprint {
		return // another datagram's by now
	}
	if atomic.CompareAndSwapUint32(word, was, bpf.FragmentLost) {
		atomic.AddUint32(&h.tables.Control.Held, -(was >> 24))
		at := &h.tables.Fragments[w.number/bpf.BucketSlots].Slots[w.number%bpf.BucketSlots].Meta
		meta := atomic.LoadUint64(at)
		atomic.CompareAndSwapUint64(at, meta, meta|bpf.RankLost<<bpf.StateShift)
	}
}

func (h *holder) forget(key datagram) {
	w := h.waiting[key]
	h.count -= len(w.frames)
	h.order.Remove(w.number)
	delete(h.byNumber, w.number)
	delete(h.waiting, key)
}

// expire drops what waited too long; sweep counts it as no longer held.
func (h *holder) expire(now time.Time) {
	h.expired = now
	for key, w := range h.waiting {
		if now.Sub(w.frames[len(w.frames)-1].since) > h.ttl {
			h.forget(key)
		}
	}
}

// inject runs the frame through the program again, which sends it by itself.
func (h *holder) inject(f heldFrame) {
	if h.program == nil {
		return
	}
	// A frame that cannot be sent any more (its interface went) is lost, as any
	// other fragment on that way.
	h.program.Run(&ebpf.RunOptions{Data: f.frame, Context: &skbContext{Ifindex: f.ifindex}})
}

// skbContext is struct __sk_buff up to what TEST_RUN lets us choose.
type skbContext struct {
	_       [10]uint32
	Ifindex uint32
	_       [37]uint32
}
