package flow

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

func TestHashForm(t *testing.T) {
	h := HashKey{1, 2, 3}
	k := NewKey(netip.MustParseAddrPort("10.0.0.1:5000"), netip.MustParseAddrPort("192.0.2.1:5684"), ProtoUDP)
	form := make([]byte, 40)
	copy(form, []byte{10: 0xff, 11: 0xff, 12: 10, 13: 0, 14: 0, 15: 1})
	copy(form[16:], []byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1})
	binary.BigEndian.PutUint16(form[32:], 5000)
	binary.BigEndian.PutUint16(form[34:], 5684)
	form[36] = 17
	if h.Flow(k) != h.Sum(form) {
		t.Error("Flow hashes another form than it documents")
	}
	clear(form[16:])
	if h.Source(k) != h.Sum(form) {
		t.Error("Source hashes another form than it documents")
	}
	if n := testing.AllocsPerRun(100, func() { h.Flow(k); h.Source(k) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKey(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:5000"), netip.MustParseAddrPort("[2001:db8::1]:7")
	k := NewKey(a, b, ProtoTCP)
	if k.Source() != a || k.Destination() != b || k.Reverse() != NewKey(b, a, ProtoTCP) || k.Reverse().Reverse() != k {
		t.Error(k)
	}
	if k.String() != "tcp 10.0.0.1:5000 > [2001:db8::1]:7" {
		t.Error(k)
	}
	if mapped := netip.MustParseAddrPort("[::ffff:10.0.0.1]:5000"); NewKey(mapped, b, ProtoTCP) != k {
		t.Error("a mapped address is another key")
	}
	_ = NewKey(netip.AddrPort{}, netip.AddrPort{}, 0)
}

func TestTableExpires(t *testing.T) {
	table := NewTable[int, string](4)
	table.Put(1, "a", 0, 10*time.Second)
	if v := table.Get(1, 10*time.Second-1); v == nil || *v != "a" {
		t.Error("gone too early")
	}
	if table.Get(1, 10*time.Second) != nil {
		t.Error("lives too long")
	}
	if !table.Put(1, "b", 20*time.Second, time.Second) || *table.Get(1, 20*time.Second) != "b" || table.Len() != 1 {
		t.Error("an expired key cannot be set again")
	}
	table.Put(2, "c", 0, 1<<63-1)
	if table.Get(2, 1<<62) == nil {
		t.Error("never came")
	}
	table.Put(3, "d", time.Hour, 1<<63-1) // now+ttl overflows
	if table.Get(3, 2*time.Hour) == nil {
		t.Error("overflow expired an entry")
	}
	// What is over from the start, or in this moment, is neither found nor listed, though it is still in its slot.
	for _, ttl := range []time.Duration{0, -1, -time.Hour, time.Second} {
		table := NewTable[int, int](4)
		for k := 2; k < 4; k++ { // so that a slot stays unused
			table.Put(k, 8, time.Minute, time.Hour)
		}
		table.Delete(2)
		table.Delete(3)
		table.Put(1, 7, time.Minute, ttl)
		now := time.Minute + max(ttl, 0)
		if v, at := table.Find(1, now); v != nil || at != -1 || table.Len() != 1 {
			t.Errorf("ttl %s: found %v in slot %d", ttl, v, at)
		}
		for k := range table.All(now) {
			t.Errorf("ttl %s: %d is listed", ttl, k)
		}
		n := 0
		for range table.All(-2 * time.Hour) { // before all time; what was deleted never lived
			n++
		}
		if n != 1 {
			t.Errorf("ttl %s: %d entries before all time", ttl, n)
		}
	}
}

func TestProtocolNames(t *testing.T) {
	for proto, want := range map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp", 0: "0", 47: "47", 255: "255"} {
		if got := ProtocolName(proto); got != want {
			t.Errorf("protocol %d is called %s", proto, got)
		}
	}
}

func TestTableFull(t *testing.T) {
	table := NewTable[int, int](100)
	for i := range 100 {
		if !table.Put(i, i, 0, time.Duration(i+1)*time.Second) {
			t.Fatal(i)
		}
	}
	if table.Put(100, 0, 0, time.Minute) || table.Len() != 100 || table.Refused() != 1 {
		t.Error("no bound")
	}
	if !table.Put(50, 51, 0, time.Minute) {
		t.Error("a key that is there needs no room")
	}
	// 10.5 s later ten have expired, and room for ten and no more is found.
	now := 10*time.Second + time.Second/2
	for i := range 10 {
		if !table.Put(1000+i, i, now, time.Minute) {
			t.Fatal(i)
		}
	}
	if table.Put(2000, 0, now, time.Minute) {
		t.Error("no bound after reclaim")
	}
	for i := range 10 {
		if table.Get(i, 0) != nil {
			t.Error(i, "was not reclaimed")
		}
	}
}

func TestTableRenewsByStep(t *testing.T) {
	table := NewTable[int, int](4)
	table.Put(1, 0, 0, 10*time.Second)
	for now, want := range map[time.Duration]time.Duration{
		999 * time.Millisecond: 10 * time.Second,
		time.Second:            11 * time.Second,
	} {
		table.Put(1, 0, 0, 10*time.Second)
		if !table.Renew(1, now, 10*time.Second, time.Second) {
			t.Error("not alive")
		}
		if until, _ := table.Until(1); until != want {
			t.Errorf("at %s: until %s, want %s", now, until, want)
		}
	}
	if table.Renew(1, time.Hour, time.Second, 0) || table.Renew(9, 0, time.Second, 0) {
		t.Error("the dead were renewed")
	}
	table.Put(2, 0, 0, time.Hour)
	table.Renew(2, 0, time.Second, time.Second)
	if table.Get(2, 2*time.Second) != nil {
		t.Error("a shorter time-out was ignored")
	}
}

func TestTableDoesNotAllocate(t *testing.T) {
	table := NewTable[Key, int](1000)
	var k Key
	now := time.Duration(0)
	step := func() {
		k.SrcPort++
		now += time.Second
		table.Put(k, 1, now, 500*time.Second)
		table.Renew(k, now, 600*time.Second, time.Second)
		table.Get(k, now)
	}
	for range 200_000 {
		step()
	}
	if n := testing.AllocsPerRun(10_000, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The fragment table of the reference loses up to 74 % at these settings, for
// want of a good hash and of expiry in order; any table with room for rate·ttl
// entries must lose none.
func TestFragmentsLoseNone(t *testing.T) {
	for _, c := range []struct {
		size, perSecond int
		ttl             time.Duration
	}{
		{446, 1000, 200 * time.Millisecond},
		{398, 1000, 200 * time.Millisecond},
		{1000, 2500, 200 * time.Millisecond},
		{2018, 5000, 200 * time.Millisecond},
		{20000, 100_000, 50 * time.Millisecond},
	} {
		f := NewFragments[int](c.size, 0, 0, c.ttl, nil)
		r := rand.New(rand.NewPCG(3, 4))
		now, n := time.Duration(0), c.perSecond*5
		gap := 2 * time.Second / time.Duration(c.perSecond)
		lost := 0
		for i := range n {
			now += time.Duration(r.Int64N(int64(gap)))
			if _, h := f.First(FragmentKey{ID: uint32(i)}, i, now); h != FragmentKnown {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%+v: %d of %d lost", c, lost, n)
		}
	}
}

func TestFragments(t *testing.T) {
	f := NewFragments[string](10, 3, 2, time.Second, nil)
	k1, k2, k3 := FragmentKey{ID: 1}, FragmentKey{ID: 2}, FragmentKey{ID: 3}
	expect := func(k FragmentKey, now time.Duration, want Held) {
		t.Helper()
		if _, h := f.Later(k, now); h != want {
			t.Fatalf("%v: %d, want %d", k.ID, h, want)
		}
	}
	expect(k1, 0, FragmentWait)
	expect(k1, 0, FragmentWait)
	if c := f.Counters(); c.Held != 2 || c.Entries != 1 {
		t.Fatalf("%+v", c)
	}
	if n, h := f.First(k1, "x", 0); n != 2 || h != FragmentKnown {
		t.Fatal(n, h)
	}
	if v, h := f.Later(k1, 0); v != "x" || h != FragmentKnown || f.Counters().Held != 0 {
		t.Fatal(v, h)
	}
	// Two of one datagram is all; the third loses it, and frees what it held.
	expect(k2, 0, FragmentWait)
	expect(k2, 0, FragmentWait)
	expect(k2, 0, FragmentLost)
	if _, h := f.First(k2, "y", 0); h != FragmentLost || f.Counters().Held != 0 {
		t.Fatal(h, f.Counters())
	}
	// What no one came for is counted and forgotten.
	expect(k3, 0, FragmentWait)
	f.Expire(2 * time.Second)
	if c := f.Counters(); c.Held != 0 || c.Entries != 0 || c.Unanswered != 1 || c.Poisoned != 1 {
		t.Fatalf("%+v", c)
	}
}

func BenchmarkTablePut(b *testing.B) {
	table := NewTable[Key, [8]uint64](1 << 18)
	var k Key
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		binary.LittleEndian.PutUint64(k.Src[:], binary.LittleEndian.Uint64(k.Src[:])+1)
		now += time.Microsecond
		table.Put(k, [8]uint64{}, now, time.Second/8)
	}
}

func BenchmarkFlowHash(b *testing.B) {
	h, k := HashKey{1}, Key{SrcPort: 1}
	for b.Loop() {
		h.Flow(k)
	}
}

// A full table evicts lost datagrams first, then waiting ones, then known ones, and known ones only for first fragments.
func TestFragmentsEvictByWorth(t *testing.T) {
	var dropped []FragmentKey
	f := NewFragments[int](3, 1, 2, time.Second, func(k FragmentKey) { dropped = append(dropped, k) })
	id := func(n uint32) FragmentKey { return FragmentKey{ID: n} }
	first := func(k FragmentKey, want Held) {
		t.Helper()
		if _, h := f.First(k, int(k.ID), 0); h != want {
			t.Errorf("first of %d: %v, want %v", k.ID, h, want)
		}
	}
	later := func(k FragmentKey, want Held) {
		t.Helper()
		if _, h := f.Later(k, 0); h != want {
			t.Errorf("later of %d: %v, want %v", k.ID, h, want)
		}
	}
	first(id(1), FragmentKnown)
	later(id(2), FragmentWait)
	later(id(3), FragmentWait) // 2 is lost: one may wait
	if len(dropped) != 1 || dropped[0] != id(2) {
		t.Errorf("dropped %v, want what 2 held", dropped)
	}
	later(id(2), FragmentLost)  // and evicts nothing
	first(id(4), FragmentKnown) // in the place of 2
	first(id(5), FragmentKnown) // in the place of 3
	if len(dropped) != 2 || dropped[1] != id(3) {
		t.Errorf("dropped %v, want what 3 held too", dropped)
	}
	later(id(6), FragmentLost) // takes the place of no known one
	left := id(7)
	left.Left = true
	first(left, FragmentRefused) // nor does a name that a datagram leaves with
	for n, want := range map[uint32]bool{1: true, 4: true, 5: true, 6: false} {
		if _, ok := f.Peek(id(n), 0); ok != want {
			t.Errorf("%d is known: %t, want %t", n, ok, want)
		}
	}
	first(id(8), FragmentKnown) // in the place of 1
	want := FragmentCounters{
		Entries: 3, Inserts: 6, Lookups: 9, Waited: 2, Poisoned: 2, Refused: 2,
		HeldEvicted: 2, EvictedLost: 1, EvictedWaiting: 1, EvictedKnown: 1, EvictedYoung: 1,
	}
	if got := f.Counters(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What one source floods takes the place of its own datagrams only.
func TestFragmentsAreSharedBySource(t *testing.T) {
	from := func(source byte, n uint32) FragmentKey {
		return FragmentKey{Src: [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: source}, ID: n}
	}
	f := NewFragments[int](100, 8, 2, time.Second, nil)
	f.First(from(1, 1), 7, 0)
	f.Later(from(2, 1), 0)
	for n := range uint32(1000) {
		now := time.Duration(n) * 100 * time.Microsecond
		f.First(from(9, n), 1, now)
		f.Later(from(9, 5000+n), now)
	}
	if v, h := f.Later(from(1, 1), 100*time.Millisecond); h != FragmentKnown || v != 7 {
		t.Errorf("the known datagram of another source: %v", h)
	}
	if n, h := f.First(from(2, 1), 7, 100*time.Millisecond); h != FragmentKnown || n != 1 {
		t.Errorf("the waiting datagram of another source: %d released, %v", n, h)
	}
}

// The floods of the review, ten times: each for a second of virtual time, from one source and from many, with good
// datagrams of ten sources. What is in order loses nothing; what is re-ordered waits 5 ms for its first fragment.
func TestFragmentsUnderFloods(t *testing.T) {
	for _, c := range []struct {
		name            string
		firsts, orphans int // of the flood, per second
		sources         uint32
	}{
		{"200000 first fragments of one source", 200_000, 0, 1},
		{"200000 first fragments of many sources", 200_000, 0, 1 << 20},
		{"50000 orphans of one source", 0, 50_000, 1},
		{"50000 orphans of many sources", 0, 50_000, 1 << 20},
		{"230000 orphans of many sources", 0, 230_000, 1 << 20},
	} {
		r := rand.New(rand.NewPCG(5, 6))
		f := NewFragments[int](16384, 256, 16, 2*time.Second, nil)
		key := func(a, b byte, source, n uint32) FragmentKey {
			k := FragmentKey{Src: [16]byte{10: 0xff, 11: 0xff, 12: a, 13: b}, ID: n}
			binary.BigEndian.PutUint16(k.Src[14:], uint16(source))
			k.Src[13] += byte(source >> 16)
			return k
		}
		type good struct {
			k         FragmentKey
			reordered bool
		}
		var waiting []good
		const gap, tick = 5, 1000 // ms between fragments; ticks per second
		inOrder, reordered, lostInOrder, lostReordered := 0, 0, 0, 0
		for ms := range tick + gap {
			now := time.Duration(ms) * time.Millisecond
			if ms >= gap {
				g := waiting[ms-gap]
				if g.reordered {
					if n, h := f.First(g.k, 1, now); n != 1 || h != FragmentKnown {
						lostReordered++
					}
				} else if _, h := f.Later(g.k, now); h != FragmentKnown {
					lostInOrder++
				}
			}
			if ms < tick {
				g := good{key(11, 0, uint32(ms%10), uint32(ms)), ms%4 == 0 && c.orphans <= 50_000}
				waiting = append(waiting, g)
				h := FragmentKnown
				if g.reordered {
					reordered++
					_, h = f.Later(g.k, now)
				} else {
					inOrder++
					_, h = f.First(g.k, 1, now)
				}
				if h != FragmentKnown && h != FragmentWait {
					t.Fatalf("%s: a good datagram began with %v", c.name, h)
				}
			}
			for range c.firsts / tick {
				f.First(key(10, 0, r.Uint32N(c.sources), r.Uint32()), 1, now)
			}
			for range c.orphans / tick {
				f.Later(key(10, 0, r.Uint32N(c.sources), r.Uint32()), now)
			}
		}
		// 256 places for 50,000 waiting ones per second of as many sources: each waits 5 ms.
		allowed := 0
		if c.orphans == 50_000 && c.sources > 1 {
			allowed = reordered
		}
		if lostInOrder > 0 || lostReordered > allowed {
			t.Errorf("%s: lost %d of %d in order, %d of %d re-ordered", c.name, lostInOrder, inOrder, lostReordered, reordered)
		}
		if n := f.Counters(); n.Entries > 16384 || n.Held > 256 {
			t.Errorf("%s: beyond the bounds: %+v", c.name, n)
		}
	}
}

// Each counter counts what it says.
func TestFragmentCounters(t *testing.T) {
	f := NewFragments[int](3, 2, 2, time.Second, nil)
	id := func(n uint32) FragmentKey { return FragmentKey{ID: n, Proto: ProtoUDP} }
	check := func(what string, want FragmentCounters) {
		t.Helper()
		if got := f.Counters(); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	f.First(id(1), 7, 0)
	f.First(id(1), 7, 0) // a retransmission that is decided alike
	f.Later(id(1), 0)
	check("a datagram in order", FragmentCounters{Entries: 1, Inserts: 1, Lookups: 3})
	if _, h := f.First(id(1), 8, 0); h != FragmentKnown {
		t.Errorf("the id came round: %v", h)
	}
	check("decided otherwise", FragmentCounters{Entries: 1, Inserts: 1, Lookups: 4, Collisions: 1})
	f.Later(id(2), 0)
	f.Later(id(2), 0)
	check("two wait", FragmentCounters{Entries: 2, Held: 2, Inserts: 2, Lookups: 6, Waited: 2, Collisions: 1})
	f.Later(id(2), 0) // no more of one datagram may wait
	check("it is lost", FragmentCounters{Entries: 2, Inserts: 2, Lookups: 7, Waited: 2, Collisions: 1, Poisoned: 1})
	f.Later(id(3), 0)
	check("another one waits", FragmentCounters{Entries: 3, Held: 1, Inserts: 3, Lookups: 8, Waited: 3, Collisions: 1, Poisoned: 1})
	f.Expire(2 * time.Second)
	check("all is forgotten", FragmentCounters{Inserts: 3, Lookups: 8, Waited: 3, Collisions: 1, Poisoned: 1, Expired: 3, Unanswered: 1})
}
