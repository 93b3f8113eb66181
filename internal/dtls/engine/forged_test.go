package engine

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/udpio"
)

// forge makes a record of the device's session that will not open.
func (d *device) forge() []byte {
	b := d.seal([]byte("forged"))
	b[len(b)-1] ^= 1
	return b
}

// handle is in for floods: it keeps nothing of what is sent.
func (x *wire) handle(d []byte, from netip.AddrPort) {
	x.w.datagram(d, source{addr: from}, false)
	if len(x.w.out.used) > 0 {
		x.w.out.flush()
	}
}

// Forged records from elsewhere neither end a session nor keep its client from moving: 2^20 of them ended one of CCM_8.
func TestForgedRecordsFromElsewhere(t *testing.T) {
	for _, test := range []struct {
		name   string
		source func(i int) netip.AddrPort
		tried  uint64 // records in ten seconds, at most
		roams  bool   // the client can move to another source meanwhile
	}{
		{"one source", func(int) netip.AddrPort { return addr(1 << 20) }, 32 + 11, true},
		{"ports of one source", func(i int) netip.AddrPort { return netip.AddrPortFrom(addr(1<<20).Addr(), uint16(i)) }, 32 + 11, true},
		{"a hundred sources", func(i int) netip.AddrPort { return addr(1<<20 + i%100) }, 100 * (32 + 11), true},
		{"many sources", func(i int) netip.AddrPort { return addr(1<<20 + i) }, 1<<16 + 16*11, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := newWire(t, nil)
			d := x.mustConnect(addr(1), "dev", true)
			other := x.mustConnect(addr(2), "dev", true)
			forged := d.forge()
			work := make([]byte, len(forged))
			const records = 5 << 18 // more than the 2^20 that end a session
			x.w.out.publicOut = func([]udpio.Message) {}
			for i := range records {
				if i%(records/10000) == 0 {
					x.w.now += time.Millisecond
				}
				copy(work, forged) // a record is opened in place
				x.handle(work, test.source(i))
			}
			x.capture()
			s := x.stats()
			if s.BadMACs > test.tried || s.BadMACs+s.ForgedDropped != records || s.Sessions != 2 || s.Spent != 0 {
				t.Errorf("%d tried, at most %d: %+v", s.BadMACs, test.tried, s)
			}
			if n := x.w.forgers.slots.Size(); n > maxForgers || n != len(x.w.forgers.byKey) || n != x.w.forgers.order.Len() {
				t.Errorf("%d sources are remembered", n)
			}
			// The client where it is, behind another port of its NAT, and elsewhere.
			if !x.alive(d) {
				t.Error("the client is not served")
			}
			d.addr = netip.AddrPortFrom(d.addr.Addr(), 999)
			if !x.alive(d) {
				t.Error("the client is not served from another port")
			}
			d.addr = addr(3)
			if x.alive(d) != test.roams {
				t.Errorf("the client is served from another address: %t", !test.roams)
			}
			// A client of another session moves to where the forger is.
			other.addr = test.source(0)
			if !x.alive(other) {
				t.Error("another session's client is kept out")
			}
			x.w.now += time.Second
			d.addr = addr(4)
			if !x.alive(d) {
				t.Error("the client is not served a second after the flood")
			}
		})
	}
}

// A client moves while forged records come from many sources, each of which sends one: 5,000 a second for ten seconds.
func TestAClientMovesDuringAFloodFromManySources(t *testing.T) {
	x := newWire(t, nil)
	d := x.mustConnect(addr(1), "dev", true)
	forged := d.forge()
	work := make([]byte, len(forged))
	for i := range 50000 {
		if i%5 == 0 {
			x.w.now += time.Millisecond
		}
		copy(work, forged)
		x.handle(work, addr(1<<20+i))
		if i%10000 == 9999 {
			if d.addr = addr(2 + i); !x.alive(d) {
				t.Fatalf("after %d forged records: the client is not served from another address", i+1)
			}
		}
	}
	if s := x.stats(); s.BadMACs != 50000 || s.ForgedDropped != 0 || s.Sessions != 1 {
		t.Errorf("%+v", s)
	}
}

// Whoever forges the client's own address can end its session, but not in silence, and not keep the client out.
func TestForgedRecordsFromTheOwnAddress(t *testing.T) {
	x := newWire(t, nil)
	d := x.mustConnect(addr(1), "dev", true)
	forged := d.forge()
	work := make([]byte, len(forged))
	const limit = 1 << 20
	for range limit - 1 {
		copy(work, forged)
		x.handle(work, addr(1))
	}
	if !x.alive(d) {
		t.Fatal("the client is kept out")
	}
	x.in(forged, addr(1))
	if level, description := x.alert(d); level != 2 || description != 20 {
		t.Errorf("alert %d, %d, want fatal bad_record_mac", level, description)
	}
	if s := x.stats(); s.BadMACs != limit || s.Spent != 1 || s.Closed != 1 || s.Sessions != 0 || s.ForgedDropped != 0 {
		t.Errorf("%+v", s)
	}
	again := x.mustConnect(addr(1), "dev", true)
	x.in(forged, addr(1))
	if !x.alive(again) || x.stats().UnknownCIDs != 1 {
		t.Error("the new session is not out of the forger's reach")
	}
}

// A datagram counts one failure of a session, however many records it has: 32 of them would end it with a thirty-second of the
// datagrams. Records before the forged one, and those of other sessions, are served.
func TestADatagramFailsOnce(t *testing.T) {
	x := newWire(t, nil)
	d, other := x.mustConnect(addr(1), "dev", true), x.mustConnect(addr(2), "dev", true)
	forged := d.forge()
	var all []byte
	for range 32 {
		all = append(all, forged...)
	}
	for _, from := range []netip.AddrPort{addr(1), addr(9)} {
		before := x.stats()
		x.in(append([]byte(nil), all...), from)
		if s := x.stats(); s.BadMACs != before.BadMACs+1 || s.ForgedDropped != before.ForgedDropped+31 {
			t.Errorf("from %v: %d tried, %d dropped", from, s.BadMACs-before.BadMACs, s.ForgedDropped-before.ForgedDropped)
		}
	}
	before := x.stats()
	mixed := append(d.seal([]byte("GET")), forged...)
	mixed = append(mixed, other.seal([]byte("GET"))...)
	x.in(append(mixed, forged...), addr(1))
	if s := x.stats(); s.Requests != before.Requests+2 || s.BadMACs != before.BadMACs+1 || s.ForgedDropped != before.ForgedDropped+1 {
		t.Errorf("%d requests served, %d tried, %d dropped", s.Requests-before.Requests, s.BadMACs-before.BadMACs, s.ForgedDropped-before.ForgedDropped)
	}
	if !x.alive(d) {
		t.Error("the next datagram is not served")
	}
}

func TestNoAllocationPerForgedRecord(t *testing.T) {
	x := newWire(t, nil)
	var devices []*device
	for i := range 2 * maxForgers {
		devices = append(devices, x.mustConnect(addr(i), fmt.Sprint("dev-", i), true))
	}
	var forged [][]byte
	for _, d := range devices {
		forged = append(forged, d.forge())
	}
	i := 0
	send := func() {
		x.w.datagram(forged[i%len(forged)], source{addr: addr(1<<20 + i)}, false)
		i++
	}
	for range 2 * len(forged) { // the tables reach their size
		send()
	}
	if n := testing.AllocsPerRun(1000, send); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if s := x.stats(); s.BadMACs < 5000 || s.ForgersEvicted < 4000 {
		t.Errorf("%+v", s)
	}
}

// BenchmarkForged: what a record of a flood costs that is not tried.
func BenchmarkForged(b *testing.B) {
	x := newWire(b, nil)
	d := x.mustConnect(addr(1), "dev", true)
	forged := d.forge()
	from := source{addr: addr(2)}
	for range 100 {
		x.w.datagram(append([]byte(nil), forged...), from, false)
	}
	b.ReportAllocs()
	for b.Loop() {
		x.w.datagram(forged, from, false)
	}
}
