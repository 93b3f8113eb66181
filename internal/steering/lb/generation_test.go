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

// moves is the share, in percent, of connections to backends that are still there after changes, which reach another backend
// through a balancer that does not know them: they began before the first change.
func moves(t *testing.T, generations int, steps ...[]int) float64 {
	t.Helper()
	var first, last *Snapshot
	for i, weights := range steps {
		next, err := CompileAt(Moment{Now: time.Unix(int64(i+1), 0)}, last, poolOf(weights, generations), nil, AllCaps())
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

// What is kept is bounded, and too old tables are left out.
func TestGenerationsBounded(t *testing.T) {
	var last *Snapshot
	for i := range 20 {
		weights := slices.Repeat([]int{100}, 2+i)
		next, err := CompileAt(Moment{Now: time.Unix(int64(i+1), 0)}, last, poolOf(weights, 4), nil, AllCaps())
		if err != nil {
			t.Fatal(err)
		}
		last = next
	}
	if n := len(last.Services[0].Generations); n != 4 {
		t.Fatalf("%d generations", n)
	}
	later, err := CompileAt(Moment{Now: time.Unix(19+300, 0)}, last, poolOf(slices.Repeat([]int{100}, 21), 4), nil, AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	if g := later.Services[0].Generations; len(g) != 1 || !g[0].Replaced.Equal(time.Unix(20, 0)) {
		t.Fatalf("after five minutes: %d generations", len(g))
	}
}
