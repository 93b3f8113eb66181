package gateway

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

func addr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

func TestSourceLimitBoundsAPrefixAndTheWhole(t *testing.T) {
	d := newSourceLimit(4, 3)
	guests := make([]limitEntry, 5)
	for i := range 3 {
		if !d.enter(&guests[i], addr(1), nil) {
			t.Fatalf("guest %d has no place", i)
		}
	}
	if d.enter(&guests[3], addr(1), nil) {
		t.Error("a fourth guest of one prefix was let in")
	}
	if !d.enter(&guests[3], addr(2), nil) {
		t.Error("another prefix was refused before the limit was reached")
	}
	if d.enter(&guests[4], addr(3), nil) {
		t.Error("a fifth guest was let in, and no one may be evicted")
	}
	d.leave(&guests[0])
	d.leave(&guests[0]) // twice is harmless
	if !d.enter(&guests[4], addr(3), nil) || d.size() != 4 {
		t.Error("the place that was left is not given again")
	}
}

func TestSourceLimitPrefixes(t *testing.T) {
	d := newSourceLimit(100, 1)
	enter := func(s string) bool { return d.enter(new(limitEntry), netip.MustParseAddr(s), nil) }
	for _, c := range []struct {
		addr string
		want bool
	}{
		{"192.0.2.1", true},
		{"::ffff:192.0.2.1", false},
		{"192.0.2.2", true},
		{"2001:db8::1", true},
		{"2001:db8::ffff:1", false},
		{"2001:db8:0:1::1", true},
		{"fe80::1%eth0", true},
		{"fe80::2%eth1", false},
	} {
		if got := enter(c.addr); got != c.want {
			t.Errorf("%s: %v, want %v", c.addr, got, c.want)
		}
	}
}

func TestSourceLimitMakesRoomForOthers(t *testing.T) {
	d := newSourceLimit(8, 8)
	var evicted []int
	flood := make([]limitEntry, 8)
	for i := range flood {
		d.enter(&flood[i], addr(1), func() { evicted = append(evicted, i) })
	}
	for n := 2; n < 9; n++ { // one place each until the flood has one more than a newcomer would have
		d.enter(new(limitEntry), addr(n), func() { evicted = append(evicted, -n) })
	}
	if want := []int{0, 1, 2, 3, 4, 5, 6}; len(evicted) != len(want) {
		t.Fatalf("evicted %v, want the oldest of the flood: %v", evicted, want)
	} else {
		for i := range want {
			if evicted[i] != want[i] {
				t.Fatalf("evicted %v, want the oldest of the flood: %v", evicted, want)
			}
		}
	}
	if d.enter(new(limitEntry), addr(20), nil) {
		t.Error("eight prefixes with one guest each, and a ninth was let in")
	}
	d.leave(&flood[0]) // evicted before: no one else's place
	if d.size() != 8 {
		t.Errorf("%d inside, want 8", d.size())
	}
}

// TestSourceLimitCounts goes in and out at random and compares with a plain count.
func TestSourceLimitCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	d := newSourceLimit(50, 9)
	type visitor struct {
		limitEntry
		prefix int
	}
	inside := map[*visitor]bool{}
	perPrefix := map[int]int{}
	out := func(v *visitor) {
		delete(inside, v)
		perPrefix[v.prefix]--
	}
	for range 20000 {
		if len(inside) > 0 && r.IntN(3) == 0 {
			for v := range inside {
				d.leave(&v.limitEntry)
				out(v)
				break
			}
			continue
		}
		v := &visitor{prefix: r.IntN(20)}
		if d.enter(&v.limitEntry, addr(v.prefix), func() { out(v) }) {
			inside[v] = true
			perPrefix[v.prefix]++
		}
		if d.size() != len(inside) || len(inside) > 50 || perPrefix[v.prefix] > 9 {
			t.Fatalf("%d inside, counted %d, of prefix %d: %d", d.size(), len(inside), v.prefix, perPrefix[v.prefix])
		}
	}
	for v := range inside {
		d.leave(&v.limitEntry)
	}
	if d.size() != 0 || len(d.prefixes) != 0 {
		t.Errorf("%d guests, %d prefixes left", d.size(), len(d.prefixes))
	}
}
