package ebpf

import (
	"context"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// lruCase is what a look-up in an LRU table finds.
type lruCase uint8

const (
	lruNone  lruCase = iota // not measured
	lruHit                  // the flow, put there before
	lruEvict                // nothing: it is inserted into the full table
)

// Verdicts of the comparators.
const (
	besideKnown    = 1
	besideInserted = 2
)

// Names of the comparators' parts in the generator's object.
const (
	besideTable = "lru_flows"
	besideLRU   = "lru"
	besideFIB   = "fib"
	tcxSuffix   = "_tcx"
)

// loadGenerator loads what writes the packets.
func loadGenerator() (*ebpf.Collection, error) {
	return loadBenchParts(nil, 0, func(name string) bool { return !isBeside(name) })
}

// loadBeside loads what others do with a packet, with an empty table.
func loadBeside(generator *ebpf.Collection, entries int) (*ebpf.Collection, error) {
	return loadBenchParts(map[string]*ebpf.Map{"templates": generator.Maps["templates"]}, entries, isBeside)
}

func isBeside(program string) bool {
	switch program {
	case besideLRU, besideFIB, besideLRU + tcxSuffix, besideFIB + tcxSuffix:
		return true
	}
	return false
}

func loadBenchParts(shared map[string]*ebpf.Map, entries int, wanted func(program string) bool) (*ebpf.Collection, error) {
	spec, err := bpf.LoadBench()
	if err != nil {
		return nil, fmt.Errorf("read the generator: %w", err)
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !wanted(name) })
	table := wanted(besideLRU)
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool {
		return name != "templates" && (name == besideTable) != table
	})
	if table {
		spec.Maps[besideTable].MaxEntries = uint32(entries)
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("load the generator: %w", err)
	}
	return c, nil
}

// besideRounds measures, round by round beside one of our programs, what
// others do with the same packets.
type besideRounds struct {
	b        *bencher
	programs *ebpf.Collection // nil: this case is compared with nothing
	t        bpf.BenchTemplate
	next     uint64 // the first flow that the table has not seen
	lru, fib []float64
}

// newRounds fills a table of its own with the flows of the case.
func (b *bencher) newRounds(t *bpf.BenchTemplate) (*besideRounds, error) {
	r := &besideRounds{b: b, t: *t}
	if b.c.beside == lruNone {
		return r, nil
	}
	var err error
	if r.programs, err = loadBeside(b.generator, b.config.Flows); err != nil {
		return nil, err
	}
	flows := max(b.c.flows, 1)
	if b.c.beside == lruEvict {
		flows = b.config.Flows + b.config.Flows/8
		r.next = uint64(flows)
	}
	r.t.Next = 0
	if err := b.through(r.program(besideLRU), &r.t, flows); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *besideRounds) close() {
	if r.programs != nil {
		r.programs.Close()
	}
}

func (r *besideRounds) program(name string) *ebpf.Program {
	if r.b.hook == attach.HookTCX {
		name += tcxSuffix
	}
	return r.programs.Programs[name]
}

// measure does one round.
func (r *besideRounds) measure(packets int) error {
	if r.programs == nil {
		return nil
	}
	want := uint32(besideKnown)
	r.t.Next = 0
	if r.b.c.beside == lruEvict {
		want, r.t.Next = besideInserted, r.next
		r.next += uint64(packets)
	}
	ns, err := r.time(besideLRU, packets, want)
	if err != nil {
		return err
	}
	r.lru = append(r.lru, ns)
	r.t.Next = 0
	if ns, err = r.time(besideFIB, packets, besideKnown); err != nil {
		return err
	}
	r.fib = append(r.fib, ns)
	return nil
}

// time times one program, whose last packet tells that it did what it should.
func (r *besideRounds) time(name string, packets int, want uint32) (float64, error) {
	ns, err := r.b.time(r.program(name), &r.t, packets)
	if err == nil && r.b.verdict != want {
		err = fmt.Errorf("the program %s returned %d, want %d", name, r.b.verdict, want)
	}
	return ns, err
}

// tell adds to a result what was measured beside it.
func (r *besideRounds) tell(result *BenchResult) {
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
func (b *bencher) measureRoom(ctx context.Context) (BenchResult, error) {
	t, err := b.template(b.c.packet)
	if err != nil {
		return BenchResult{}, err
	}
	var all, floors []float64
	for range b.config.Rounds {
		if ctx.Err() != nil {
			return BenchResult{}, ctx.Err()
		}
		packets := min(b.config.Packets, b.config.Flows/2)
		floor, err := b.floor(t, packets)
		if err != nil {
			return BenchResult{}, err
		}
		ns, err := b.room(t, packets)
		if err != nil {
			return BenchResult{}, err
		}
		all, floors = append(all, ns), append(floors, floor)
	}
	r := BenchResult{Case: b.c.name, Hook: b.hook.String(), Family: b.family, Flows: b.c.flows, NS: low(all), Floor: low(floors), Reason: "-"}
	r.Net = r.NS - r.Floor
	return r, nil
}

// room does one round, with a new table.
func (b *bencher) room(t *bpf.BenchTemplate, packets int) (float64, error) {
	r := &besideRounds{b: b, t: *t}
	var err error
	if r.programs, err = loadBeside(b.generator, b.config.Flows); err != nil {
		return 0, err
	}
	defer r.close()
	return r.time(besideLRU, packets, besideInserted)
}
