package membership

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 5884)
}

// process is a node that runs, as it is in truth.
type process struct {
	id    uint32
	since time.Duration // it answers every ping
}

// world is a table, and what is true around it.
type world struct {
	t       *testing.T
	table   *Table
	now     time.Duration // of the caller; it may jump
	real    time.Duration // it does not
	next    time.Duration // tick, in real time
	running map[netip.AddrPort]process
	allowed map[netip.AddrPort]bool // addresses that were ever in the group, or fixed
	fixed   map[netip.AddrPort]uint32
	group   map[netip.AddrPort]bool
	open    bool
	lossy   bool // pings are lost
	seen    [numOfKinds]int
	journal []string
}

func (w *world) take(out Output) {
	for _, e := range out.Events {
		w.seen[e.Kind]++
		w.journal = append(w.journal, fmt.Sprintf("%v: event %d: %+v", w.real, e.Kind, e))
	}
	for _, to := range out.Ping {
		if !w.allowed[to] && !w.open {
			w.t.Fatalf("pinged %s, which is no address of the cluster", to)
		}
		if p, ok := w.running[to]; ok && !w.lossy {
			w.message(to, p.id, true)
		}
	}
}

// message delivers a ping or pong.
func (w *world) message(from netip.AddrPort, id uint32, pong bool) {
	if !w.table.Allowed(from) {
		return
	}
	_, out := w.table.Received(from, id, StateUp, pong, false, w.now)
	w.take(out)
}

// run lets time pass. Every running node pings as well, every 4 s.
func (w *world) run(d time.Duration) {
	const step = 500 * time.Millisecond
	for end := w.real + d; w.real < end; {
		w.real, w.now = w.real+step, w.now+step
		if w.real%(4*time.Second) == 0 && !w.lossy {
			for i := range 12 {
				if p, ok := w.running[address(i)]; ok {
					w.message(address(i), p.id, false)
				}
			}
		}
		if w.real >= w.next {
			w.next = w.real + TickEvery
			w.take(w.table.Tick(w.now))
		}
		w.check()
	}
}

// check asserts what holds always.
func (w *world) check() {
	w.t.Helper()
	ids, addresses := map[uint32]netip.AddrPort{}, map[netip.AddrPort]bool{}
	for _, m := range w.table.Members() {
		if addresses[m.Addr] {
			w.t.Fatalf("%s is listed twice", m.Addr)
		}
		addresses[m.Addr] = true
		if !w.open && !w.allowed[m.Addr] {
			w.t.Fatalf("%s is no address of the cluster", m.Addr)
		}
		if !m.Known {
			continue
		}
		if other, ok := ids[m.ID]; ok {
			w.t.Fatalf("node %d is at %s and %s", m.ID, other, m.Addr)
		}
		ids[m.ID] = m.Addr
		if m.ID == w.table.self {
			w.t.Fatalf("this node's id %d is at %s", m.ID, m.Addr)
		}
	}
	for addr, id := range w.fixed {
		if ids[id] != addr {
			w.t.Fatalf("fixed node %d is not at %s", id, addr)
		}
	}
}

func (w *world) dump() {
	for _, line := range w.journal {
		w.t.Log(line)
	}
}

// at returns where the table has a node, if it is up.
func (w *world) at(id uint32) netip.AddrPort {
	for _, m := range w.table.Members() {
		if m.Known && m.Up && m.ID == id {
			return m.Addr
		}
	}
	return netip.AddrPort{}
}

// Nodes start, stop, move, take each other's ids; strangers forge pings from every address; messages get lost; the clock jumps. The
// invariants of check hold all the time. A node that answers is never replaced, whatever is forged. When peace returns, the table is
// true within a minute.
func TestModel(t *testing.T) {
	var seen [numOfKinds]int
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, seed%3 == 2)
		steady := netip.AddrPort{}
		for range 40 {
			w.disturb(random, steady)
			w.run(time.Duration(random.IntN(12)) * 500 * time.Millisecond)
			if p, ok := w.running[steady]; ok && w.real-p.since > 30*time.Second && w.at(p.id) != steady {
				w.dump()
				t.Fatalf("seed %d: node %d answers at %s, and is believed at %s", seed, p.id, steady, w.at(p.id))
			}
			if !steady.IsValid() && random.IntN(8) == 0 {
				steady = w.steadyNode(random)
			}
		}
		w.peace()
		w.run(90 * time.Second)
		for addr, p := range w.running {
			if w.at(p.id) != addr {
				w.dump()
				t.Fatalf("seed %d: node %d is at %s, and is believed at %s", seed, p.id, addr, w.at(p.id))
			}
		}
		up := 0
		for _, m := range w.table.Members() {
			if m.Known && m.Up {
				up++
			}
		}
		if up != len(w.running) {
			w.dump()
			t.Fatalf("seed %d: %d nodes are believed up, %d are", seed, up, len(w.running))
		}
		for kind, n := range w.seen {
			seen[kind] += n
		}
	}
	for kind, n := range seen {
		if n == 0 && Kind(kind) != Full { // which TestFull is for
			t.Errorf("the model never reached event %d", kind)
		}
	}
	t.Logf("events: %v", seen)
}

func newWorld(t *testing.T, open bool) *world {
	t.Helper()
	w := &world{
		t: t, running: map[netip.AddrPort]process{}, allowed: map[netip.AddrPort]bool{}, fixed: map[netip.AddrPort]uint32{address(1): 1},
		group: map[netip.AddrPort]bool{}, open: open,
	}
	spec := Spec{Self: 0, Fixed: []Node{{1, address(1)}}, Open: open}
	w.allowed[address(1)] = true
	for i := 2; i < 7; i++ {
		spec.Group = append(spec.Group, address(i))
		w.allowed[address(i)], w.group[address(i)] = true, true
	}
	var err error
	if w.table, err = Compile(spec); err != nil {
		t.Fatal(err)
	}
	return w
}

// steadyNode chooses an address whose node is left alone from now on, and whose id no other takes.
func (w *world) steadyNode(random *rand.Rand) netip.AddrPort {
	addr, id := address(2+random.IntN(4)), uint32(100)
	w.lossy = false
	w.running[addr] = process{id: id, since: w.real}
	w.run(15 * time.Second)
	for i := 0; w.at(id) != addr && i < 8; i++ {
		w.run(5 * time.Second)
	}
	if w.at(id) != addr {
		w.dump()
		w.t.Fatalf("a node started at %s and was not found", addr)
	}
	w.running[addr] = process{id: id, since: w.real}
	return addr
}

// disturb does one thing.
func (w *world) disturb(random *rand.Rand, steady netip.AddrPort) {
	addr, id := address(1+random.IntN(9)), uint32(random.IntN(10))
	claimed := id
	if random.IntN(3) == 0 {
		claimed = 100
	}
	switch op := random.IntN(12); {
	case op < 3 && addr != steady: // starts, with an id that may be taken
		if id == 0 || addr == address(1) || !w.open && !w.allowed[addr] {
			id = 1
			addr = address(1)
		}
		w.running[addr] = process{id: id, since: w.real}
	case op < 5 && addr != steady:
		delete(w.running, addr)
	case op < 8: // a forged ping or pong, many times
		for range 1 + random.IntN(20) {
			w.message(addr, claimed, random.IntN(2) == 0)
		}
	case op == 8 && !steady.IsValid():
		w.lossy = !w.lossy
	case op == 9:
		w.now += time.Duration(random.IntN(3600)) * time.Second
	case op == 10:
		w.now -= min(w.now, time.Duration(random.IntN(3600))*time.Second)
	case op == 11:
		w.take(w.table.Alive(addr, w.now))
	}
	if w.table.self == 0 && random.IntN(30) == 0 {
		w.message(addr, 0, false) // another node has our id
	}
}

// peace leaves one node for each id, at addresses of the group.
func (w *world) peace() {
	w.lossy = false
	clear(w.running)
	w.running[address(1)] = process{id: 1}
	for i := 2; i < 7; i++ {
		w.running[address(i)] = process{id: uint32(20 + i)}
	}
}

// Addresses that come and go by discovery: a node that answers stays while it answers, a new address is pinged at once, and never more
// than the bound are kept.
func TestSetGroup(t *testing.T) {
	w := newWorld(t, false)
	for i := 2; i < 7; i++ {
		w.running[address(i)] = process{id: uint32(i)}
	}
	w.run(5 * time.Second)
	w.table.SetGroup([]netip.AddrPort{address(2), address(9)})
	w.allowed[address(9)] = true
	if w.at(3) != address(3) {
		t.Fatal("a node that answers was dropped, because discovery does not list it")
	}
	w.running[address(9)] = process{id: 9}
	delete(w.running, address(3))
	w.run(2500 * time.Millisecond)
	if w.at(9) != address(9) {
		t.Error("a new address was not pinged at once")
	}
	w.run(15 * time.Second)
	if w.table.Allowed(address(3)) {
		t.Error("an address stays that is silent and not listed")
	}
	many := make([]netip.AddrPort, 1000)
	for i := range many {
		many[i] = netip.AddrPortFrom(address(50).Addr(), uint16(i+1))
	}
	w.table.SetGroup(many)
	if n := len(w.table.Members()); n > MaxGroup+MaxNodes {
		t.Errorf("%d addresses are kept", n)
	}
}
