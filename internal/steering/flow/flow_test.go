package flow

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// The vectors of the SipHash paper's appendix A and its reference code
// (vectors_sip64): key 00..0f, message 00..n-1.
func TestSipHashVectors(t *testing.T) {
	var key HashKey
	var message [64]byte
	for i := range message {
		message[i] = byte(i)
	}
	copy(key[:], message[:])
	for n, want := range []uint64{
		0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d,
		0xcf2794e0277187b7, 0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137,
		0x93f5f5799a932462, 0x9e0082df0ba9e4b0, 0x7a5dbbc594ddb9f3, 0xf4b32f46226bada7,
		0x751e8fbc860ee5fb, 0x14ea5627c0843d90, 0xf723ca908e7af2ee, 0xa129ca6149be45e5,
	} {
		if got := key.Sum(message[:n]); got != want {
			t.Errorf("%d bytes: %016x, want %016x", n, got, want)
		}
	}
}

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

// Against a plain map, over random operations.
func TestTableAgainstModel(t *testing.T) {
	type item struct {
		v      int
		expiry time.Duration
	}
	r := rand.New(rand.NewPCG(1, 2))
	table := NewTable[int, int](64)
	model := map[int]item{}
	now := time.Duration(0)
	for step := range 200_000 {
		now += time.Duration(r.IntN(20)) * time.Millisecond
		k := r.IntN(128)
		live := 0
		for key, it := range model {
			if it.expiry <= now {
				delete(model, key)
			} else {
				live++
			}
		}
		ttl := time.Duration(r.IntN(2000)) * time.Millisecond
		_, there := model[k]
		switch r.IntN(5) {
		case 0, 1:
			if ok := table.Put(k, step, now, ttl); ok != (there || live < 64) {
				// An expired entry of the same key is replaced in place.
				t.Fatalf("step %d: Put %v with %d live", step, ok, live)
			} else if ok {
				model[k] = item{step, now + ttl}
			}
		case 2:
			if table.Renew(k, now, ttl, 0) != there {
				t.Fatalf("step %d: Renew", step)
			}
			if there {
				model[k] = item{model[k].v, now + ttl}
			}
		case 3:
			table.Delete(k)
			delete(model, k)
		case 4:
			table.Expire(now, r.IntN(3)-1)
		}
		it, there := model[k]
		if v := table.Get(k, now); (v != nil) != (there && it.expiry > now) || v != nil && *v != it.v {
			t.Fatalf("step %d: Get %v, model %v", step, v, it)
		}
		if table.Len() > 64 {
			t.Fatalf("step %d: %d entries", step, table.Len())
		}
		if step%1000 == 0 {
			seen := 0
			for key, v := range table.All(now) {
				if it, ok := model[key]; !ok || it.v != *v {
					t.Fatalf("step %d: All gave %d", step, key)
				}
				seen++
			}
			want := 0
			for _, it := range model {
				if it.expiry > now {
					want++
				}
			}
			if seen != want {
				t.Fatalf("step %d: All gave %d of %d", step, seen, want)
			}
		}
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
		f := NewFragments[int](c.size, 0, 0, c.ttl)
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
	f := NewFragments[string](10, 3, 2, time.Second)
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
	// What nobody came for is counted and forgotten.
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

// A full table gives up a datagram that was silent for half its ttl, and no
// younger one, so a burst needs no room of its own.
func TestFragmentsMakeRoomInTheSecondHalf(t *testing.T) {
	f := NewFragments[int](2, 2, 2, time.Second)
	first := func(id uint32, now time.Duration, want Held) {
		t.Helper()
		if _, h := f.First(FragmentKey{ID: id}, int(id), now); h != want {
			t.Errorf("first of %d at %v: %v, want %v", id, now, h, want)
		}
	}
	first(1, 0, FragmentKnown)
	first(2, 100*time.Millisecond, FragmentKnown)
	first(3, 499*time.Millisecond, FragmentRefused) // all are young
	first(3, 500*time.Millisecond, FragmentKnown)   // in the place of 1
	if _, ok := f.Peek(FragmentKey{ID: 1}, 500*time.Millisecond); ok {
		t.Error("1 is still known")
	}
	if v, ok := f.Peek(FragmentKey{ID: 2}, 500*time.Millisecond); !ok || v != 2 {
		t.Error("2 was forgotten")
	}
	if c := f.Counters(); c.Early != 1 || c.Refused != 1 || c.Entries != 2 || c.Expired != 0 {
		t.Errorf("%+v", c)
	}
	// What waits for its first fragment is never given up early.
	g := NewFragments[int](1, 2, 2, time.Second)
	if _, h := g.Later(FragmentKey{ID: 1}, 0); h != FragmentWait {
		t.Fatal(h)
	}
	if _, h := g.First(FragmentKey{ID: 2}, 2, 900*time.Millisecond); h != FragmentRefused {
		t.Error(h)
	}
	if c := g.Counters(); c.Held != 1 || c.Early != 0 {
		t.Errorf("%+v", c)
	}
}

// Each counter counts what it says.
func TestFragmentCounters(t *testing.T) {
	f := NewFragments[int](3, 2, 2, time.Second)
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
	f.Later(id(3), 0) // no more may wait
	check("one is lost", FragmentCounters{Entries: 3, Held: 2, Inserts: 3, Lookups: 7, Waited: 2, Collisions: 1, Poisoned: 1})
	f.First(id(4), 1, 0)
	check("the table is full", FragmentCounters{Entries: 3, Held: 2, Inserts: 3, Lookups: 8, Waited: 2, Collisions: 1, Poisoned: 1, Refused: 1})
	f.Expire(2 * time.Second)
	check("all is forgotten", FragmentCounters{Inserts: 3, Lookups: 8, Waited: 2, Collisions: 1, Poisoned: 1, Refused: 1, Expired: 3, Unanswered: 2})
}
