package ebpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netns"

	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
)

// An event as the program writes it: struct event in maps.h, then the key of
// the datagram, then the frame.
const (
	eventKind, eventBackend, eventIfindex, eventCaptured = 8, 20, 24, 32
	eventHead, datagramKey                               = 40, 40
	eventHeld, eventRelease, eventNeighbour              = 0, 1, 3
)

// datagram names the fragments that belong together.
type datagram [datagramKey]byte

// heldFrame is a fragment that waits for the first of its datagram.
type heldFrame struct {
	ifindex uint32
	frame   []byte
	since   time.Time
}

// holder keeps early fragments. The program bounds how many it hands over
// (limits.held_fragments); what waits longer than fragment_ttl is dropped.
type holder struct {
	program *ebpf.Program
	hops    *nexthop.Table
	limit   int
	ttl     time.Duration
	waiting map[datagram][]heldFrame
	count   int
}

// runHeld takes early fragments from the ring until ctx ends and gives them
// back once their first one went on.
func (d *Datapath) runHeld(ctx context.Context) error {
	d.mu.Lock()
	t, limits, program := d.tables, d.snapshot, d.injector
	d.mu.Unlock()
	if t == nil {
		<-ctx.Done()
		return nil
	}
	// TEST_RUN looks interfaces up in the calling thread's namespace. Never
	// unlocked: the thread ends with the goroutine.
	runtime.LockOSThread()
	if err := netns.Set(d.namespace); err != nil {
		return fmt.Errorf("enter the network namespace for held fragments: %w", err)
	}
	r, err := ringbuf.NewReader(t.maps[bpfMapEvents])
	if err != nil {
		return fmt.Errorf("read the ring of events: %w", err)
	}
	defer r.Close()
	h := &holder{program: program, hops: d.hops, limit: limits.Limits.HeldFragments, ttl: limits.Limits.FragmentTTL, waiting: map[datagram][]heldFrame{}}
	for ctx.Err() == nil {
		r.SetDeadline(time.Now().Add(h.ttl / 4))
		record, err := r.Read()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			h.expire(time.Now())
		case err != nil:
			return fmt.Errorf("read the ring of events: %w", err)
		default:
			h.event(record.RawSample, t.datagrams)
		}
	}
	return nil
}

// event takes a fragment in, or gives those of a datagram back.
func (h *holder) event(b []byte, entries []bpfFragmentEntry) {
	if len(b) < eventHead+datagramKey {
		return
	}
	key := datagram(b[eventHead:])
	switch binary.LittleEndian.Uint32(b[eventKind:]) {
	case eventNeighbour:
		var a [16]byte
		copy(a[:], b[eventHead+16:])
		h.hops.Probe(netip.AddrFrom16(a).Unmap())
	case eventRelease:
		for _, f := range h.waiting[key] {
			h.inject(f)
		}
		h.forget(key)
	case eventHeld:
		n := int(binary.LittleEndian.Uint32(b[eventCaptured:]))
		number := int(binary.LittleEndian.Uint32(b[eventBackend:]))
		if n > len(b)-eventHead-datagramKey || number >= len(entries) {
			return
		}
		f := heldFrame{
			ifindex: binary.LittleEndian.Uint32(b[eventIfindex:]),
			frame:   append([]byte(nil), b[eventHead+datagramKey:][:n]...), since: time.Now(),
		}
		// On another CPU the first one may have come meanwhile, and its event
		// before this one.
		if entries[number].Kind < fragmentWaiting {
			h.inject(f)
			return
		}
		if h.count >= h.limit {
			h.expire(time.Now())
		}
		if h.count < h.limit {
			h.waiting[key] = append(h.waiting[key], f)
			h.count++
		}
	}
}

func (h *holder) forget(key datagram) {
	h.count -= len(h.waiting[key])
	delete(h.waiting, key)
}

// expire drops what waited too long; sweep counts it as no longer held.
func (h *holder) expire(now time.Time) {
	for key, frames := range h.waiting {
		if now.Sub(frames[len(frames)-1].since) > h.ttl {
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
