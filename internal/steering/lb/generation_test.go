package lb

import (
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
)

var printMoves = flag.Bool("moves", false, "print the table of TestMovesOfLivingBackends")

// poolOf is a spec with backends of weights; a negative weight leaves the backend out.
func poolOf(weights []int, generations int) Spec {
	mode := L3DSR
	s := ServiceSpec{
		Name: "pool", Mode: &mode, Generations: &generations,
		VIPs: []VIPSpec{{Address: AddressPrefix{netip.MustParsePrefix("192.0.2.1/32")}, Protocol: Protocol(TCP), Port: PortRange{443, 443}}},
	}
	for i, w := range weights {
		if w >= 0 {
			s.Backends = append(s.Backends, BackendSpec{
				Name: fmt.Sprintf("b%d", i), Address: netip.AddrFrom4([4]byte{10, 1, byte(i / 256), byte(i)}), Weight: &w,
			})
		}
	}
	return Spec{Services: []ServiceSpec{s}}
}

// halving is the time of the change of number i: each table is in force for half as long as the one before, so that all of them count.
func halving(i int) time.Time {
	seconds := int64(1)
	for k := range i {
		seconds += 1 << (19 - k)
	}
	return time.Unix(seconds, 0)
}

// moves is the share, in percent, of connections to backends that are still there after changes, which reach another backend
// through a balancer that does not know them: they began before the first change.
func moves(t *testing.T, generations int, steps ...[]int) float64 {
	t.Helper()
	var first, last *Snapshot
	for i, weights := range steps {
		next, err := CompileAt(Moment{Now: halving(i)}, last, poolOf(weights, generations), nil, AllCaps())
		if err != nil {
			t.Fatal(err)
		}
		if last = next; first == nil {
			first = next
		}
	}
	before, after := first.Services[0], last.Services[0]
	flows := 20_000
	if *printMoves {
		flows = 200_000
	}
	living, moved := 0, 0
	for i := range flows {
		k := flow.NewKey(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), uint16(1024+i>>16)), netip.MustParseAddrPort("192.0.2.1:443"), TCP)
		h := first.FlowHash(before, k)
		was := before.Select(h)
		if after.Backend(was.Name) == nil {
			continue
		}
		living++
		if is, _ := after.SelectMidstream(h, TCP); is.Name != was.Name {
			moved++
		}
	}
	return 100 * float64(moved) / float64(living)
}

// Connections to backends that live do not move, after as many changes as there are earlier tables; with the present table
// alone some do. With -moves it prints the table of docs/lb-redundancy.md.
func TestMovesOfLivingBackends(t *testing.T) {
	counts := []int{10}
	if *printMoves {
		counts = append(counts, 100, 500)
	}
	for _, n := range counts {
		all := slices.Repeat([]int{100}, n)
		with := func(i, weight int) []int { c := slices.Clone(all); c[i] = weight; return c }
		more := append(slices.Clone(all), 100)
		two := with(1, -1)
		two[2] = -1
		three := slices.Clone(two)
		three[3] = -1
		for _, change := range []struct {
			name  string
			steps [][]int
		}{
			{"one removed", [][]int{all, with(1, -1)}},
			{"one added", [][]int{all, more}},
			{"weight of one 100 to 50", [][]int{all, with(1, 50)}},
			{"one replaced", [][]int{all, with(1, -1), append(with(1, -1), 100)}},
			{"three removed, one by one", [][]int{all, with(1, -1), two, three}},
		} {
			var share [4]float64
			for generations := range share {
				share[generations] = moves(t, generations, change.steps...)
			}
			if *printMoves {
				fmt.Printf("| %d | %s | %.2f %% | %.2f %% | %.2f %% | %.2f %% |\n", n, change.name, share[0], share[1], share[2], share[3])
			}
			if share[0] == 0 {
				t.Errorf("%d backends, %s: the present table alone moves none, so nothing is shown", n, change.name)
			}
			if changes := len(change.steps) - 1; share[changes] > 0 && changes < 2 {
				t.Errorf("%d backends, %s: %.3f %% move", n, change.name, share[changes])
			}
		}
	}
}

// How long earlier tables are used: as long as they were in force, and generation_time at most. The times of a table that comes back add up. The
// first one may have been in force at other balancers for a long time.
func TestEarlierTablesAreUsedAsLongAsTheyWereInForce(t *testing.T) {
	two, three := []int{100, 100}, []int{100, 100, 100}
	var last *Snapshot
	at := func(seconds int64, weights []int, want ...int64) { // when the earlier tables were replaced
		t.Helper()
		next, err := CompileAt(Moment{Now: time.Unix(seconds, 0)}, last, poolOf(weights, 4), nil, AllCaps())
		if err != nil {
			t.Fatal(err)
		}
		last = next
		var got []int64
		for _, g := range next.Services[0].Generations {
			got = append(got, g.Replaced.Unix())
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %d: earlier tables replaced at %v, want %v", seconds, got, want)
		}
	}
	at(1000, three)
	at(2000, two, 2000)
	at(2005, three, 2005) // that of two was in force for 5 s, and that of three is the present one
	at(2009, three, 2005)
	at(2010, three)
	at(3000, two, 3000)
	at(3299, two, 3000)
	at(3300, two) // generation_time is 5 minutes
	at(3400, three, 3400)
	at(3401, two, 3401)
	at(3402, three, 3402)
	at(3699, three, 3402) // 400 s and 1 s
	at(3702, three)
}

// What is kept is bounded.
func TestGenerationsBounded(t *testing.T) {
	var last *Snapshot
	for i := range 20 {
		weights := slices.Repeat([]int{100}, 2+i)
		next, err := CompileAt(Moment{Now: halving(i)}, last, poolOf(weights, 4), nil, AllCaps())
		if err != nil {
			t.Fatal(err)
		}
		last = next
	}
	if n := len(last.Services[0].Generations); n != 4 {
		t.Fatalf("%d generations", n)
	}
}
