package nfqueue

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// one opens a data path with one queue in memory.
func one(t testing.TB, spec string, now func() time.Duration) (*Datapath, *memoryQueue) {
	t.Helper()
	d, queues := openMemory(t, Config{Now: now}, 1)
	if err := d.Apply(compile(t, spec)); err != nil {
		t.Fatal(err)
	}
	return d, queues[0]
}

// Fragments in any order leave with one mark, and those held in the same write as the first one.
func TestHeldFragmentsLeaveWithTheFirst(t *testing.T) {
	for _, order := range [][]int{{1, 2, 0}, {2, 1, 0}, {1, 0, 2}, {0, 1, 2}} {
		for _, line := range []string{
			"udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=4000 id=7 frag=1400",
			"udp [2001:db8:1::1]:5000 > [2001:db8::1]:5684 payload=4000 id=7 frag=1400",
		} {
			var c clock
			d, q := one(t, threeBackends, c.Now)
			pieces := ip(t, line)
			var ids [3]uint32
			for at, piece := range order {
				ids[piece] = q.push(pieces[piece], 128)
				step(t, d)
				first := slices.Index(order, 0)
				if waiting := q.verdict(ids[piece]) == nil; waiting != (at < first) {
					t.Fatalf("order %v: piece %d waits: %v", order, piece, waiting)
				}
				if at == first {
					write := q.writes[len(q.writes)-1]
					if len(write) != at+1 || write[0].ID != ids[0] {
						t.Errorf("order %v: the first fragment's write is %+v", order, write)
					}
				}
			}
			for _, id := range ids {
				if v := q.verdict(id); v.Drop || !v.Marked || v.Mark != q.verdict(ids[0]).Mark {
					t.Errorf("order %v: %+v", order, *v)
				}
			}
			s := d.Stats().Queues[0]
			if s.Held != 0 || s.HeldReleased != uint64(slices.Index(order, 0)) || s.HeldExpired+s.HeldAbandoned != 0 {
				t.Errorf("order %v: %+v", order, s)
			}
		}
	}
}

// What is held too long is dropped, at the time and not with the next packet only.
func TestHeldFragmentsExpire(t *testing.T) {
	var c clock
	d, q := one(t, threeBackends, c.Now)
	pieces := ip(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=4000 id=7 frag=1400")
	late := q.push(pieces[1], 0)
	step(t, d)
	c.set(900 * time.Millisecond)
	later := q.push(pieces[2], 0) // renews the datagram
	step(t, d)
	c.set(1800 * time.Millisecond)
	step(t, d)
	if q.verdict(late) != nil || q.verdict(later) != nil {
		t.Fatal("dropped although the datagram was renewed")
	}
	if p := d.workers[0].pollTimeout(); p != 100*time.Millisecond {
		t.Errorf("would sleep %s, the datagram expires in 100ms", p)
	}
	c.set(1900 * time.Millisecond)
	step(t, d)
	for _, id := range []uint32{late, later} {
		if v := q.verdict(id); v == nil || !v.Drop {
			t.Errorf("verdict %+v", v)
		}
	}
	if s := d.Stats(); s.Queues[0].HeldExpired != 2 || s.Queues[0].Held != 0 || s.Tables.Fragments.Held != 0 {
		t.Errorf("%+v", s.Queues[0])
	}
	first := q.push(pieces[0], 0)
	step(t, d)
	if v := q.verdict(first); v.Drop {
		t.Error("the first fragment was dropped, although nothing of its datagram was known any more")
	}
	if d.workers[0].pollTimeout() != idleTimeout {
		t.Error("nothing is held, the worker may sleep")
	}
}

// A datagram with more early fragments than may wait is dropped whole, those that waited too.
func TestHeldPerDatagram(t *testing.T) {
	var c clock
	d, q := one(t, threeBackends, c.Now) // 4 of one datagram
	pieces := ip(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=9000 id=7 frag=1400")
	var ids []uint32
	for _, piece := range pieces[1:6] {
		ids = append(ids, q.push(piece, 0))
	}
	step(t, d)
	ids = append(ids, q.push(pieces[0], 0), q.push(pieces[6], 0))
	step(t, d)
	for i, id := range ids {
		if v := q.verdict(id); v == nil || !v.Drop {
			t.Errorf("packet %d: %+v", i, v)
		}
	}
	if s := d.Stats(); s.Queues[0].HeldAbandoned != 4 || s.Queues[0].Held != 0 {
		t.Errorf("%+v", s.Queues[0])
	}
}

// Whatever comes, each packet gets one verdict in the end, what is held stays within its bound, and a datagram goes to
// one backend.
func TestEveryPacketIsAnsweredOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var c clock
	d, q := one(t, threeBackends, c.Now)
	marks := map[string]map[uint32]bool{}
	owner := map[uint32]string{}
	for round := range 1000 {
		for range random.IntN(12) {
			name := "udp 10.0.0.1:5000 > 192.0.2.1:5684"
			if random.IntN(2) == 0 {
				name = "udp [2001:db8:1::1]:5001 > [2001:db8::1]:5684"
			}
			name += " payload=5000 id=" + string(rune('1'+random.IntN(9))) + " frag=1400"
			pieces := ip(t, name)
			id := q.push(pieces[random.IntN(len(pieces))], 96)
			owner[id] = name
		}
		if random.IntN(10) == 0 {
			q.push([]byte{0x45, 1, 2}, 0)
		}
		step(t, d)
		if n := d.workers[0].held.count; n > 8 {
			t.Fatalf("round %d: %d held, the bound is 8", round, n)
		}
		c.set(c.Now() + time.Duration(random.IntN(400))*time.Millisecond)
	}
	if err := d.workers[0].finish(); err != nil {
		t.Fatal(err)
	}
	if len(q.unknown) > 0 {
		t.Errorf("%d packets without a verdict", len(q.unknown))
	}
	for _, w := range q.writes {
		for _, v := range w {
			if v.Marked {
				if marks[owner[v.ID]] == nil {
					marks[owner[v.ID]] = map[uint32]bool{}
				}
				marks[owner[v.ID]][v.Mark] = true
			}
		}
	}
	for name, all := range marks {
		if len(all) != 1 {
			t.Errorf("%s went to %d backends", name, len(all))
		}
	}
	if len(marks) < 10 {
		t.Errorf("only %d datagrams got anywhere", len(marks))
	}
}

// Nothing is allocated per packet, held or not.
func TestNoAllocations(t *testing.T) {
	var c clock
	d, queues := openMemory(t, Config{Now: c.Now, Batch: 64}, 1)
	if err := d.Apply(compile(t, threeBackends)); err != nil {
		t.Fatal(err)
	}
	w := d.workers[0]
	w.queue = &silentQueue{}
	_ = queues
	var lines [][]byte
	for i := range 20 {
		lines = append(lines, ip(t, "udp 10.0.0."+string(rune('1'+i%9))+":5000 > 192.0.2.1:5684 payload=100")...)
	}
	lines = append(lines, ip(t, "tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn")...)
	pieces := ip(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=4000 id=7 frag=1400")
	lines = append(lines, pieces[1], pieces[2], pieces[0])
	now, id, batch := time.Duration(0), uint32(0), 0
	iterate := func() {
		now += 2 * time.Second // fragments of the last turn are forgotten
		c.set(now)
		for i, data := range lines {
			id++
			w.packets[i] = Packet{ID: id, Data: data, Length: len(data)}
		}
		if err := w.iterate(len(lines)); err != nil {
			t.Fatal(err)
		}
		batch++
	}
	for range 50 {
		iterate()
	}
	if n := testing.AllocsPerRun(200, iterate); n != 0 {
		t.Errorf("%.2f allocations for a batch of %d packets", n, len(lines))
	}
	if w.held.released == 0 {
		t.Error("nothing was held: the test does not test that")
	}
}

// silentQueue takes verdicts and gives no packet.
type silentQueue struct{ verdicts int }

func (q *silentQueue) Receive([]Packet, time.Duration) (int, error) { return 0, nil }
func (q *silentQueue) Answer(v []Verdict) error                     { q.verdicts += len(v); return nil }
func (q *silentQueue) Wake()                                        {}
func (q *silentQueue) Close() error                                 { return nil }

// Workers that run answer packets, take snapshots and questions meanwhile, and at the end drop what is held.
func TestRun(t *testing.T) {
	var c clock
	d, queues := openMemory(t, Config{Now: c.Now}, 2)
	if err := d.Run(context.Background()); err == nil {
		t.Fatal("runs without a snapshot")
	}
	if err := d.Apply(compile(t, threeBackends)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	syn := ip(t, "tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn")[0]
	a := queues[0].awaitVerdict(queues[0].push(syn, 0))
	b := queues[1].awaitVerdict(queues[1].push(syn, 0))
	if a.Mark != b.Mark || !a.Marked {
		t.Errorf("two workers, two opinions: %+v, %+v", a, b)
	}
	stranger := queues[0].awaitVerdict(queues[0].push(ip(t, "udp 10.0.0.1:1 > 192.0.2.99:1")[0], 0))
	if stranger.Marked || stranger.Drop {
		t.Errorf("a packet to no VIP: %+v", stranger)
	}
	only := strings.ReplaceAll(threeBackends, "name: b, mark: 102", "name: b, mark: 102, weight: 0")
	only = strings.ReplaceAll(only, "name: c, mark: 103", "name: c, mark: 103, weight: 0")
	next := compile(t, only)
	next.Generation = 2
	if err := d.Apply(next); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		fresh := slices.Clone(syn)
		binary.BigEndian.PutUint16(fresh[20:], uint16(6000+i))
		if v := queues[1].awaitVerdict(queues[1].push(fresh, 0)); v.Mark != 101 {
			t.Errorf("a new flow got mark %d, only 101 takes new ones", v.Mark)
		}
	}
	if v := queues[0].awaitVerdict(queues[0].push(syn, 0)); v.Mark != a.Mark {
		t.Errorf("the old flow moved from %d to %d", a.Mark, v.Mark)
	}
	early := queues[0].push(ip(t, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=4000 id=7 frag=1400 piece=2")[0], 0)
	if _, err := await(d, func(s *Stats) bool { return s.Queues[0].Held == 1 }); err != nil {
		t.Error(err)
	}
	s := d.Stats()
	if s.Generation != 2 || len(s.Queues) != 2 || s.Queues[0].Number != 0 || s.Queues[1].Number != 1 {
		t.Errorf("%+v", s)
	}
	if got := s.Backends[lb.Target{Service: "pool", Backend: "a"}]; got.Packets < 20 || got.Bytes < 20*40 || got.NewFlows < 20 {
		t.Errorf("backend a: %+v", got)
	}
	if flows := flowsOf(d); len(flows) != 22 {
		t.Errorf("%d flows, want 22 (one of them in both workers)", len(flows))
	}
	few := 0
	if d.Flows(func(Flow) bool { few++; return few < 5 }); few != 5 {
		t.Errorf("%d flows, requested 5", few)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if v := queues[0].verdict(early); v == nil || !v.Drop {
		t.Errorf("what was held at the end: %+v", v)
	}
	if !queues[0].closed || !queues[1].closed {
		t.Error("the queues are still taken")
	}
	if s := d.Stats(); s.Queues[0].HeldAbandoned != 1 {
		t.Errorf("after the end: %+v", s.Queues[0])
	}
	if err := d.Run(context.Background()); err == nil {
		t.Error("runs a second time")
	}
}

// Gaps in the packets' numbers are counted, also where the numbers wrap.
func TestMissingIDs(t *testing.T) {
	d, q := one(t, threeBackends, func() time.Duration { return 0 })
	syn := ip(t, "tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn")[0]
	for _, last := range []uint32{4, 5, 9, 1<<32 - 2, 1<<32 - 1} { // the numbers are one higher; the last wraps to 0
		if last == 1<<32-2 {
			d.workers[0].lastID = last // as if everything between had come
		}
		q.lastID = last
		q.push(syn, 0)
		step(t, d)
	}
	q.lastID = 1
	q.push(syn, 0)
	step(t, d)
	if n := d.Stats().Queues[0].MissingIDs; n != 3+1 {
		t.Errorf("%d numbers are missing, want 7 to 9 and 1", n)
	}
}

// Large segments are taken whole, also those whose length does not fit their header.
func TestLargeSegments(t *testing.T) {
	d, q := one(t, threeBackends, func() time.Duration { return 0 })
	for _, line := range []string{
		"tcp 10.0.0.1:5000 > 192.0.2.1:80 payload=1000", "tcp [2001:db8:1::1]:5000 > [2001:db8::1]:5684 payload=1000",
	} {
		data := ip(t, line)[0]
		length := data[2:4]
		if data[0]>>4 == 6 {
			length = data[4:6]
		}
		clear(length)
		q.mu.Lock()
		id := q.pushLocked(Packet{Large: true, Length: 180000, Data: data[:200]})
		q.mu.Unlock()
		step(t, d)
		if v := q.verdict(id); v.Drop {
			t.Errorf("%s as a segment of 180,000 bytes was dropped", line)
		}
	}
	s := d.Stats()
	if s.Queues[0].Large != 2 || s.Queues[0].Bytes != 360000 || s.Reasons[lb.ReasonMalformed] != 0 {
		t.Errorf("%+v, reasons %v", s.Queues[0], s.Reasons)
	}
	if n := s.Backends; len(n) == 0 {
		t.Error("no backend")
	}
	total := uint64(0)
	for _, n := range s.Backends {
		total += n.Bytes
	}
	if total != 180000 { // the IPv6 one is to no VIP
		t.Errorf("backends got %d bytes", total)
	}
}

// Packets that come with a mark are counted: before a fast path's program they should not be queued.
func TestMarkedPackets(t *testing.T) {
	d, q := one(t, threeBackends, func() time.Duration { return 0 })
	data := ip(t, "udp [2001:db8:1::1]:5000 > [2001:db8::1]:5684 payload=100")[0]
	q.mu.Lock()
	q.pushLocked(Packet{Mark: 7, Length: len(data), Data: data})
	q.pushLocked(Packet{Length: len(data), Data: data})
	q.mu.Unlock()
	step(t, d)
	if s := d.Stats(); s.Queues[0].Marked != 1 || s.Queues[0].Packets != 2 {
		t.Errorf("%+v", s.Queues[0])
	}
}

// Headers beyond the copy range are distinguished from broken ones.
func TestShortCopies(t *testing.T) {
	d, q := one(t, threeBackends, func() time.Duration { return 0 })
	data := ip(t, "udp [2001:db8:1::1]:5000 > [2001:db8::1]:5684 payload=100")[0]
	cut := q.push(data, 44)
	broken := q.push(data[:44], 0)
	step(t, d)
	if !q.verdict(cut).Drop || !q.verdict(broken).Drop {
		t.Error("not dropped")
	}
	if s := d.Stats(); s.Queues[0].Short != 1 || s.Reasons[lb.ReasonMalformed] != 2 {
		t.Errorf("%+v", s.Queues[0])
	}
}

func TestPairs(t *testing.T) {
	for _, n := range []int{1, 2, 10, 100, 1000} {
		var p pairs
		for i := range n {
			k := flow.Key{Src: [16]byte{12: 10, 14: byte(i >> 8), 15: byte(i)}, Dst: [16]byte{15: 1}}
			for port := range 3 {
				k.SrcPort = uint16(port)
				p.add(&k)
			}
		}
		if got := p.estimate(0); got < n*9/10-1 || got > n*11/10+1 {
			t.Errorf("%d pairs: estimated %d", n, got)
		}
		p.estimate(pairWindow)
		if got := p.estimate(2 * pairWindow); got < n*9/10-1 {
			t.Errorf("%d pairs: forgotten within the window, estimated %d", n, got)
		}
		if got := p.estimate(3 * pairWindow); got != 0 {
			t.Errorf("%d pairs: still %d after three windows", n, got)
		}
	}
}

// held against a plain model.
func TestHeldModel(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	type fragment struct {
		key   uint32
		id    uint32
		until time.Duration
	}
	const limit, ttl = 6, 10 * time.Second
	h := newHeld(limit, ttl)
	var model []fragment
	now := time.Duration(0)
	for id := uint32(1); id < 20000; id++ {
		now += time.Duration(random.IntN(1500)) * time.Millisecond
		key := uint32(random.IntN(4))
		var got []uint32
		collect := func(p *packet.Packet, id uint32) { got = append(got, id) }
		var want []uint32
		keep := model[:0:0]
		switch random.IntN(4) {
		case 0, 1:
			p := packet.Packet{Fragment: flow.FragmentKey{ID: key}, Data: []byte{byte(key)}}
			added := h.add(&p, id, now)
			if added != (len(model) < limit) {
				t.Fatalf("add says %v with %d held", added, len(model))
			}
			if added {
				model = append(model, fragment{key, id, 0})
				for i := range model {
					if model[i].key == key {
						model[i].until = now + ttl
					}
				}
			}
			continue
		case 2:
			h.take(flow.FragmentKey{ID: key}, collect)
			for _, f := range model {
				if f.key == key {
					want = append(want, f.id)
				} else {
					keep = append(keep, f)
				}
			}
		case 3:
			h.expire(now, collect)
			for _, f := range model {
				if f.until <= now {
					want = append(want, f.id)
				} else {
					keep = append(keep, f)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
		}
		model = keep
		if !slices.Equal(got, want) || h.count != len(model) {
			t.Fatalf("got %v, want %v; %d held, want %d", got, want, h.count, len(model))
		}
	}
}

// While snapshots change under traffic, no packet is dropped and each goes by one of them whole (nfqlb clears its table
// first).
func TestApplyUnderTraffic(t *testing.T) {
	var c clock
	d, queues := openMemory(t, Config{Now: c.Now}, 2)
	specs := []*lb.Snapshot{compile(t, threeBackends), compile(t, strings.Replace(threeBackends, "  - {name: c, mark: 103}\n", "", 1))}
	if err := d.Apply(specs[0]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	syn := ip(t, "tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn")[0]
	for i := range 300 {
		var ids [2][]uint32
		for n, q := range queues {
			for port := range 8 {
				binary.BigEndian.PutUint16(syn[20:], uint16(i*8+port))
				ids[n] = append(ids[n], q.push(syn, 0))
			}
		}
		if err := d.Apply(specs[(i+1)%2]); err != nil {
			t.Fatal(err)
		}
		for n, q := range queues {
			for _, id := range ids[n] {
				if v := q.awaitVerdict(id); v.Drop || v.Mark < 101 || v.Mark > 103 {
					t.Fatalf("change %d: %+v", i, v)
				}
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A ping of a service with ping: balancer is accepted without a mark, also where packets of no service get one: the kernel
// answers it. So are its fragments, and a ping of an address that no flow rule takes gets that mark.
func TestPingsForTheKernelPass(t *testing.T) {
	var c clock
	d, q := one(t, `
no_service_mark: 9
services:
- name: pool
  mode: mark
  ping: balancer
  vips: [{address: 192.0.2.1, protocol: udp, port: 53}]
  flows: [{name: rule, priority: 1, destinations: [192.0.2.2/32]}]
  backends: [{name: a, mark: 1}]
`, c.Now)
	for line, want := range map[string]Verdict{
		"ping 10.0.0.1 > 192.0.2.1 ident=7":                                  {},
		"ping 10.0.0.1 > 192.0.2.1 ident=7 payload=3000 id=7 frag=1400":      {},
		"ping 10.0.0.1 > 192.0.2.2 ident=7":                                  {},
		"ping 10.0.0.1 > 192.0.2.3 ident=7":                                  {Mark: 9, Marked: true},
		"ping 10.0.0.1 > 192.0.2.3 ident=7 payload=3000 id=8 frag=1400":      {Mark: 9, Marked: true},
		"udp 10.0.0.1:5000 > 192.0.2.1:53":                                   {Mark: 1, Marked: true},
		"unreachable 10.0.0.9 about pong 192.0.2.1 > 10.0.0.1 ident=7 seq=1": {},
	} {
		for i, data := range ip(t, line) {
			id := q.push(data, 0)
			step(t, d)
			if v := q.verdict(id); v == nil || v.Drop || v.Mark != want.Mark || v.Marked != want.Marked {
				t.Errorf("%s, packet %d: verdict %+v, want %+v", line, i, v, want)
			}
		}
	}
}
