package programcost

import (
	"context"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/generator"
)

// lruCase is what a look-up in an LRU table finds.
type lruCase uint8

const (
	lruNone  lruCase = iota // not measured
	lruHit                  // the flow, put there before
	lruEvict                // nothing: it is inserted into the full table
)

// loadComparators loads what others do with a packet, with an empty table.
func loadComparators(objects *ebpf.Collection, entries int) (*ebpf.Collection, error) {
	return generator.LoadParts(map[string]*ebpf.Map{"templates": objects.Maps["templates"]}, entries, generator.IsComparator)
}

// comparison measures, round by round with one of our programs, what
// others do with the same packets.
type comparison struct {
	b        *bencher
	programs *ebpf.Collection // nil: this case is compared with nothing
	t        bpf.BenchTemplate
	next     uint64 // the first flow that the table has not seen
	lru, fib []float64
}

// newComparison fills a table of its own with the flows of the case.
func (b *bencher) newComparison(t *bpf.BenchTemplate) (*comparison, error) {
	r := &comparison{b: b, t: *t}
	if b.c.compared == lruNone {
		return r, nil
	}
	var err error
	if r.programs, err = loadComparators(b.Objects, b.config.Flows); err != nil {
		return nil, err
	}
	flows := max(b.c.flows, 1)
	if b.c.compared == lruEvict {
		flows = b.config.Flows + b.config.Flows/8
		r.next = uint64(flows)
	}
	r.t.Next = 0
	if err := b.Through(r.program(generator.LRU), &r.t, flows); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *comparison) close() {
	if r.programs != nil {
		r.programs.Close()
	}
}

func (r *comparison) program(name string) *ebpf.Program {
	if r.b.Hook == attach.HookTCX {
		name += generator.TCXSuffix
	}
	return r.programs.Programs[name]
}

// measure does one round.
func (r *comparison) measure(packets int) error {
	if r.programs == nil {
		return nil
	}
	want := uint32(bpf.BenchKnown)
	r.t.Next = 0
	if r.b.c.compared == lruEvict {
		want, r.t.Next = bpf.BenchInserted, r.next
		r.next += uint64(packets)
	}
	ns, err := r.time(generator.LRU, packets, want)
	if err != nil {
		return err
	}
	r.lru = append(r.lru, ns)
	r.t.Next = 0
	if ns, err = r.time(generator.FIB, packets, bpf.BenchKnown); err != nil {
		return err
	}
	r.fib = append(r.fib, ns)
	return nil
}

// time times one program, whose last packet shows that it did what it should.
func (r *comparison) time(name string, packets int, want uint32) (float64, error) {
	ns, err := r.b.Time(r.program(name), &r.t, packets)
	if err == nil && r.b.Verdict != want {
		err = fmt.Errorf("the program %s returned %d, want %d", name, r.b.Verdict, want)
	}
	return ns, err
}

// report adds to a result what was measured with it.
func (r *comparison) report(result *Result) {
	if r.programs == nil {
		return
	}
	result.LRU, result.FIB = low(r.lru)-result.Floor, low(r.fib)-result.Floor
	result.XLRU, result.XFIB = over(result.Net, result.LRU), over(result.Net, result.FIB)
}

// over is a ratio of two net times; 0 when they are too small to compare.
func over(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return a / b
}

// measureRoom times inserting into an LRU table that has room: what it costs
// before the table is full for the first time.
func (b *bencher) measureRoom(ctx context.Context) (Result, error) {
	t, err := b.Template(b.c.packet)
	if err != nil {
		return Result{}, err
	}
	var all, floors []float64
	for range b.config.Rounds {
		if ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		packets := min(b.config.Packets, b.config.Flows/2)
		floor, err := b.floor(t, packets)
		if err != nil {
			return Result{}, err
		}
		ns, err := b.room(t, packets)
		if err != nil {
			return Result{}, err
		}
		all, floors = append(all, ns), append(floors, floor)
	}
	r := Result{Case: b.c.name, Hook: b.Hook.String(), Family: b.Family, Flows: b.c.flows, NS: low(all), Floor: low(floors), Reason: "-"}
	r.Net = r.NS - r.Floor
	return r, nil
}

// room does one round, with a new table.
func (b *bencher) room(t *bpf.BenchTemplate, packets int) (float64, error) {
	r := &comparison{b: b, t: *t}
	var err error
	if r.programs, err = loadComparators(b.Objects, b.config.Flows); err != nil {
		return 0, err
	}
	defer r.close()
	return r.time(generator.LRU, packets, bpf.BenchInserted)
}
