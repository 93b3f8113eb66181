package generator

import (
	"fmt"
	"maps"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

// Generator sends packets of many flows through a program, by BPF_PROG_TEST_RUN.
type Generator struct {
	Objects *ebpf.Collection // of Load
	Index   int              // of the interface that packets come in on
	Family  int              // 4 or 6
	Hook    attach.Hook
	Flows   int    // how many different ones
	Verdict uint32 // of the packet that was sent last
}

// Comparators do with a packet what others would do: they look the 5-tuple up in an LRU hash table, or the destination in the
// kernel's routes.
const (
	Table     = "lru_flows" // the map of LRU
	LRU       = "lru"
	FIB       = "fib"
	TCXSuffix = "_tcx" // of the names of programs for TCX
)

// Load loads what writes the packets.
func Load() (*ebpf.Collection, error) {
	return LoadParts(nil, 0, func(name string) bool { return !IsComparator(name) })
}

// IsComparator says whether a program is one.
func IsComparator(program string) bool {
	switch program {
	case LRU, FIB, LRU + TCXSuffix, FIB + TCXSuffix:
		return true
	}
	return false
}

// LoadParts loads the wanted programs, on the maps given; the comparators with a table of so many entries.
func LoadParts(shared map[string]*ebpf.Map, entries int, wanted func(program string) bool) (*ebpf.Collection, error) {
	spec, err := bpf.LoadBench()
	if err != nil {
		return nil, fmt.Errorf("read the generator: %w", err)
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !wanted(name) })
	table := wanted(LRU)
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool {
		return name != "templates" && (name == Table) != table
	})
	if table {
		spec.Maps[Table].MaxEntries = uint32(entries)
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("load the generator: %w", err)
	}
	return c, nil
}

// partNames are the generator's programs and map for a hook.
type partNames struct {
	vary, nothing, jumps string
	failed               uint32 // the verdict that says so
}

func (g *Generator) parts() partNames {
	if g.Hook == attach.HookTCX {
		return partNames{"vary_tcx", "nothing_tcx", "jumps_tcx", bpf.BenchFailedTCX}
	}
	return partNames{"vary", "nothing", "jumps", 0}
}

// Nothing is the program that the packets are given to where only the generator is measured.
func (g *Generator) Nothing() *ebpf.Program { return g.Objects.Programs[g.parts().nothing] }

// Through sends n packets and takes no time.
func (g *Generator) Through(p *ebpf.Program, t *bpf.BenchTemplate, n int) error {
	_, err := g.Time(p, t, n)
	return err
}

// Time sends n packets of a template through a program and returns ns for each.
func (g *Generator) Time(p *ebpf.Program, t *bpf.BenchTemplate, n int) (float64, error) {
	m := g.Objects.Maps["templates"]
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return 0, err
	}
	values := make([]bpf.BenchTemplate, cpus)
	for i := range values {
		values[i] = *t
	}
	if err := m.Put(uint32(0), values); err != nil {
		return 0, fmt.Errorf("give the generator its template: %w", err)
	}
	if err := g.Objects.Maps[g.parts().jumps].Put(uint32(0), p); err != nil {
		return 0, fmt.Errorf("point the generator at the program: %w", err)
	}
	var d time.Duration
	if g.Verdict, d, err = g.Objects.Programs[g.parts().vary].Benchmark(make([]byte, t.Length), n, nil); err != nil {
		return 0, fmt.Errorf("BPF_PROG_TEST_RUN: %w", err)
	}
	if g.Verdict == g.parts().failed {
		return 0, fmt.Errorf("the generator failed")
	}
	return float64(d) / float64(time.Nanosecond), nil
}
