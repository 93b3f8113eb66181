package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// world is a namespace with a default route, in which the programs run by
// BPF_PROG_TEST_RUN: the routes of clients are real look-ups there.
type world struct {
	host  *netlab.Host
	index int
	there bool // the caller runs in the namespace already
	front bool // data paths stand before a queue

	mu    sync.Mutex
	opens map[worldKey]*Datapath
}

type worldKey struct {
	hook   attach.Hook
	limits lb.Limits
}

func newWorld(t testing.TB) *world {
	t.Helper()
	host, index := ebpftest.Namespace(t)
	return &world{host: host, index: index, opens: map[worldKey]*Datapath{}}
}

// open returns a data path of one hook for tables of the given limits, empty.
// Loading takes a quarter of a second, so one is kept for each set of limits.
func (w *world) open(t *testing.T, hook attach.Hook, limits lb.Limits) *Datapath {
	t.Helper()
	defer w.enter(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	key := worldKey{hook, limits}
	d := w.opens[key]
	if d == nil {
		var err error
		if d, err = Open(Config{Hook: hook, Source4: steertest.Source4(), Source6: steertest.Source6(), detached: true, manual: true, Front: w.front}); err != nil {
			t.Fatal(err)
		}
		w.opens[key] = d
	} else if d.tables != nil {
		clear(d.tables.Flows)
		clear(d.tables.Replies)
		clear(d.tables.Fragments)
		clear(d.tables.Rates)
		d.tables.Control.Held = 0
		d.tables.Control.Crowded = 0
		m := d.tables.Maps[bpf.MapSnatSearches] // time begins again
		last := 0
		for number, name := range d.state.names {
			if name != "" { // it serves, or has served
				last = number
			}
		}
		numbers := make([]uint32, (last+1)*int(m.MaxEntries())/bpf.MaxServices)
		for i := range numbers {
			numbers[i] = uint32(i)
		}
		if _, err := m.BatchUpdate(numbers, make([]uint64, len(numbers)), nil); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// inside has the world in whose namespace a thread is, by its id, while a goroutine is locked to it.
var inside sync.Map

func (w *world) isInside() bool {
	in, _ := inside.Load(unix.Gettid())
	return in == w
}

// enter has the goroutine of a test in the namespace until the test ends: to enter it for each packet takes longer than the program does.
func (w *world) enter(t *testing.T) {
	t.Helper()
	if w.there || w.isInside() {
		return
	}
	leave, err := w.host.Enter()
	if err != nil {
		t.Fatal(err)
	}
	thread := unix.Gettid()
	before, other := inside.Swap(thread, w)
	t.Cleanup(func() {
		if inside.Delete(thread); other {
			inside.Store(thread, before)
		}
		leave()
	})
}

// small is a snapshot with smaller tables where it has those of a specification that says nothing about them: each test clears them.
func small(s *lb.Snapshot) *lb.Snapshot {
	if s.Limits.Flows != 1<<18 {
		return s
	}
	smaller := *s
	smaller.Limits.Flows = 1 << 12
	return &smaller
}

func (w *world) close() {
	for _, d := range w.opens {
		d.Close()
	}
}

// hops makes every backend reachable.
func (w *world) hops(d *Datapath) {
	for _, a := range d.state.inForce {
		if a.Spec.Mode == lb.Mark {
			continue
		}
		for _, slot := range a.Slots {
			for family := range 2 {
				d.tables.SetHop(2*int(slot)+family, nexthop.Hop{
					State: nexthop.Ready, IfIndex: w.index, MTU: 65535,
					Link: [6]byte{2, 0, 0, 0, 1, byte(slot)}, From: [6]byte{2, 0, 0, 0, 0, 1},
				})
			}
		}
	}
}

// run gives one frame to the program at now and returns its verdict and bytes.
func (w *world) run(d *Datapath, frame []byte, now time.Duration) (verdict uint32, out []byte, mark uint32, err error) {
	// Time starts a day in, so that no expiry is zero.
	if ticks := uint64((now + 24*time.Hour) / d.clock.Tick); ticks != d.tables.Control.Now {
		d.tables.Control.Now = ticks
		d.tables.ExpireFragments(ticks)
		d.tables.WatchFlows(ticks, d.clock)
	}
	options := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 1}
	var context ebpftest.SkBuff
	if d.config.Hook == attach.HookTCX {
		options.Context, options.ContextOut = &ebpftest.SkBuff{}, &context
	}
	call := func() error {
		verdict, err = d.program(d.config.Hook).Run(&options)
		return err
	}
	if w.there || w.isInside() {
		err = call()
	} else {
		err = w.host.Do(call)
	}
	return verdict, options.DataOut, context.Mark, err
}

// verdictOf reads what the program recorded on any CPU since the last call.
func (w *world) verdictOf(d *Datapath) (bpf.Verdict, error) {
	var perCPU []bpf.Verdict
	m := d.objects[d.config.Hook].Maps[bpf.MapVerdicts]
	if err := m.Lookup(uint32(0), &perCPU); err != nil {
		return bpf.Verdict{}, err
	}
	for _, v := range perCPU {
		if v.Reason != 0 {
			return v, m.Put(uint32(0), make([]bpf.Verdict, len(perCPU)))
		}
	}
	return bpf.Verdict{}, fmt.Errorf("the program recorded nothing")
}

// drain empties the ring of events.
func (w *world) drain(d *Datapath) error { return w.give(d, nil) }

// give gives what is in the ring to a holder, as Run does.
func (w *world) give(d *Datapath, h *holder) error {
	r, err := ringbuf.NewReader(d.tables.Maps[bpf.MapEvents])
	if err != nil {
		return err
	}
	defer r.Close()
	r.SetDeadline(time.Unix(1, 0))
	for {
		record, err := r.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
		if h != nil {
			h.event(record.RawSample, time.Unix(1, 0))
		}
	}
}

func frameOf(data []byte) []byte {
	kind := []byte{0x08, 0x00}
	if len(data) > 0 && data[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	frame := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 5}, kind...)
	return append(frame, data...)
}

// inner returns the IP packet in a frame.
func inner(frame []byte) []byte {
	at, kind := 14, binary.BigEndian.Uint16(frame[12:])
	for kind == 0x8100 || kind == 0x88a8 {
		kind = binary.BigEndian.Uint16(frame[at+2:])
		at += 4
	}
	b := frame[at:]
	var n int
	if b[0]>>4 == 4 {
		n = int(binary.BigEndian.Uint16(b[2:]))
	} else {
		n = 40 + int(binary.BigEndian.Uint16(b[4:]))
	}
	return b[:min(n, len(b))]
}

// packet is steertest.Path's Packet.
func (w *world) packet(d *Datapath, data []byte, frame bool, now time.Duration) (steertest.Result, error) {
	if !frame {
		data = frameOf(data)
	}
	return w.check(d, data, data, now)
}

// check gives the program the frame that was sent, and compares the result with data: the frame without its tunnel.
func (w *world) check(d *Datapath, sent, data []byte, now time.Duration) (steertest.Result, error) {
	ret, out, mark, err := w.run(d, sent, now)
	if err != nil {
		return steertest.Result{}, err
	}
	v, err := w.verdictOf(d)
	if err != nil {
		return steertest.Result{}, err
	}
	r := steertest.Result{Reason: lb.Reason(v.Reason), Action: lb.Reason(v.Reason).Action(), Mark: mark}
	var service *lb.Service
	if v.Service != 0 {
		r.Service = d.state.names[v.Service]
		service = d.snapshot.Service(r.Service)
	}
	if v.Backend != 0 {
		r.Backend = d.state.backends[uint16(v.Backend-1)].Backend
	}
	if r.Action == lb.Answer {
		if !bytes.Equal(out[:6], data[6:12]) || !bytes.Equal(out[6:12], data[:6]) {
			return r, fmt.Errorf("the reply goes to %x from %x", out[:6], out[6:12])
		}
		r.Out = inner(out)
		return r, checkVerdict(d.config.Hook, r, service, ret)
	}
	if r.Action != lb.Forward {
		if r.Reason == lb.ReasonTTLExpired && ret == ebpftest.Redirected(d.config.Hook) {
			return r, checkError(data, out, [2]uint8{11, 0}, [2]uint8{3, 0})
		}
		if r.Reason == lb.ReasonShareRefused && ret == ebpftest.Redirected(d.config.Hook) {
			return r, checkReject(data, out)
		}
		return r, checkVerdict(d.config.Hook, r, service, ret)
	}
	r.Out = inner(out)
	if service != nil && service.Mode == lb.Mark {
		// The kernel's routing follows, and is the router here.
		var p packet.Packet
		if packet.Parse(r.Out, &p) == nil {
			p.DecrementTTL()
		}
	}
	return r, checkVerdict(d.config.Hook, r, service, ret)
}

// checkError wants a right error about a frame, back to where that came from.
func checkError(frame, out []byte, want4, want6 [2]uint8) error {
	var about, p packet.Packet
	if err := packet.ParseFrame(frame, &about); err != nil {
		return err
	}
	if !bytes.Equal(out[:6], frame[6:12]) || !bytes.Equal(out[6:12], frame[:6]) {
		return fmt.Errorf("the error goes to %x from %x", out[:6], out[6:12])
	}
	if err := packet.Parse(inner(out), &p); err != nil {
		return fmt.Errorf("the error is malformed: %w: %x", err, out)
	}
	switch {
	case p.Kind != packet.KindICMPError || !p.Verify():
		return fmt.Errorf("no error, or its checksum is wrong: %x", out)
	case p.DstAddr() != about.SrcAddr() || p.TTL != 64:
		return fmt.Errorf("the error is for somebody else: %x", out)
	case about.Version == 4 && [2]uint8{p.ICMPType, p.ICMPCode} != want4 || about.Version == 6 && [2]uint8{p.ICMPType, p.ICMPCode} != want6:
		return fmt.Errorf("the error says %d, %d", p.ICMPType, p.ICMPCode)
	}
	return nil
}

// checkReject wants the answer to a refused packet: an error, or of TCP a reset (RFC 9293 section 3.10.7.1).
func checkReject(frame, out []byte) error {
	var about, p packet.Packet
	if err := packet.ParseFrame(frame, &about); err != nil {
		return err
	}
	if about.Kind != packet.KindTCP {
		return checkError(frame, out, [2]uint8{3, 3}, [2]uint8{1, 4})
	}
	if err := packet.Parse(inner(out), &p); err != nil {
		return fmt.Errorf("the reset is malformed: %w: %x", err, out)
	}
	asked, got := about.Data[about.L4:], p.Data[p.L4:]
	length := uint32(about.Length - about.Payload)
	for _, flag := range []uint8{packet.SYN, packet.FIN} {
		if about.TCPFlags&flag != 0 {
			length++
		}
	}
	flags, seq, ack := packet.RST|packet.ACK, uint32(0), binary.BigEndian.Uint32(asked[4:])+length
	if about.TCPFlags&packet.ACK != 0 {
		flags, seq, ack = packet.RST, binary.BigEndian.Uint32(asked[8:]), 0
	}
	switch {
	case about.TCPFlags&packet.RST != 0:
		return fmt.Errorf("a reset is answered: %x", out)
	case !bytes.Equal(out[:6], frame[6:12]) || !bytes.Equal(out[6:12], frame[:6]):
		return fmt.Errorf("the reset goes to %x from %x", out[:6], out[6:12])
	case p.Kind != packet.KindTCP || p.TTL != 64 || !p.Verify() || p.Length != p.Payload || p.Payload != p.L4+20:
		return fmt.Errorf("no plain TCP segment, or a wrong checksum: %x", out)
	case p.SrcAddr() != about.DstAddr() || p.DstAddr() != about.SrcAddr() || p.Key.SrcPort != about.Key.DstPort || p.Key.DstPort != about.Key.SrcPort:
		return fmt.Errorf("the reset is of another connection: %x", out)
	case p.TCPFlags != flags || binary.BigEndian.Uint32(got[4:]) != seq || binary.BigEndian.Uint32(got[8:]) != ack:
		return fmt.Errorf("reset with flags %#x, sequence %x, acknowledgement %x; want %#x, %x, %x", p.TCPFlags, got[4:8], got[8:12], flags, seq, ack)
	}
	return nil
}

// checkVerdict holds the hook's own verdict to the reason.
func checkVerdict(hook attach.Hook, r steertest.Result, service *lb.Service, ret uint32) error {
	pass, drop, redirect := uint32(2), uint32(1), ebpftest.Redirected(hook)
	if hook == attach.HookTCX {
		pass, drop = ^uint32(0), 2
	}
	want := drop
	switch {
	case r.Action == lb.Pass, r.Action == lb.Forward && service != nil && service.Mode == lb.Mark:
		want = pass
	case r.Action == lb.Forward, r.Action == lb.Answer:
		want = redirect
	}
	if ret != want {
		return fmt.Errorf("%s %s: the program returned %d, want %d", r.Action, r.Reason, int32(ret), int32(want))
	}
	return nil
}

var _ = unsafe.Sizeof(ebpftest.SkBuff{})
