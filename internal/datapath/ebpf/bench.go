package ebpf

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// BenchConfig says how long to measure. The zero value is replaced by defaults.
type BenchConfig struct {
	Rounds  int           // of each case; the result is their 20th percentile. Default 9
	Packets int           // of one case in one round. Default 262144
	Flows   int           // limits.flows: the size of Weir's table and of the LRU table. Default 1<<20
	Hooks   []attach.Hook // Default both
	Only    string        // cases with this in their name; empty: all
	// Progress is told what is being measured; may be nil.
	Progress func(what string)
}

// BenchResult is one case in one family.
type BenchResult struct {
	Case   string  `json:"case"`
	Hook   string  `json:"hook"`
	Family int     `json:"family"`  // 4 or 6
	Flows  int     `json:"flows"`   // different flows
	Table  int     `json:"table"`   // limits.flows
	InUse  int     `json:"in_use"`  // flows that were alive in the table after the last round
	NS     float64 `json:"ns"`      // a packet, generator included
	Floor  float64 `json:"floor"`   // the generator alone, in the same rounds
	Net    float64 `json:"net"`     // the difference: what the program costs
	Reason string  `json:"reasons"` // what the packets were counted as, for they might have gone another way
	// LRU and FIB are what a look-up of the same packets costs in an LRU hash
	// table and in the kernel's routes, net, in the same rounds; XLRU and XFIB
	// are Net in terms of them. 0: not measured beside this case.
	LRU  float64 `json:"lru,omitempty"`
	XLRU float64 `json:"x_lru,omitempty"`
	FIB  float64 `json:"fib,omitempty"`
	XFIB float64 `json:"x_fib,omitempty"`
}

// Bench measures the programs by BPF_PROG_TEST_RUN, in a network namespace
// of its own. Needs root.
func Bench(ctx context.Context, config BenchConfig) ([]BenchResult, error) {
	config.Rounds = cmp.Or(config.Rounds, 9)
	config.Packets = cmp.Or(config.Packets, 1<<18)
	config.Flows = cmp.Or(config.Flows, 1<<20)
	if config.Hooks == nil {
		config.Hooks = []attach.Hook{attach.HookXDP, attach.HookTCX}
	}
	if config.Progress == nil {
		config.Progress = func(string) {}
	}
	type outcome struct {
		results []BenchResult
		err     error
	}
	ended := make(chan outcome, 1)
	go func() {
		// Locked and never unlocked: the thread ends with the goroutine, and the
		// namespace with the thread.
		runtime.LockOSThread()
		if err := stayOnCPU(); err != nil {
			ended <- outcome{nil, err}
			return
		}
		results, err := bench(ctx, config)
		ended <- outcome{results, err}
	}()
	o := <-ended
	return o.results, o.err
}

// stayOnCPU keeps the thread on the processor that it runs on: caches stay
// warm, and packets are numbered by each processor for itself.
func stayOnCPU() error {
	var now uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&now)), 0, 0); errno != 0 {
		return fmt.Errorf("which processor runs the benchmark: %w", errno)
	}
	var set unix.CPUSet
	set.Set(int(now))
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("keep the benchmark on processor %d: %w", now, err)
	}
	return nil
}

func bench(ctx context.Context, config BenchConfig) (results []BenchResult, err error) {
	index, err := benchNetwork()
	if err != nil {
		return nil, fmt.Errorf("network namespace for the benchmark: %w", err)
	}
	generator, err := loadGenerator()
	if err != nil {
		return nil, err
	}
	defer generator.Close()
	tooSmall := 0 // cases that need a larger table
	for _, c := range benchCases() {
		if !strings.Contains(c.name, config.Only) {
			continue
		}
		if c.known() > config.Flows {
			tooSmall++
			continue
		}
		for _, family := range []int{4, 6} {
			for _, hook := range config.Hooks {
				if ctx.Err() != nil {
					return results, ctx.Err()
				}
				if hook == attach.HookTCX && c.tunnel {
					continue
				}
				config.Progress(fmt.Sprintf("%s, IPv%d, %s", c.name, family, hook))
				b := bencher{config: config, generator: generator, index: index, family: family, hook: hook, c: c}
				r, err := b.measure(ctx)
				if err != nil {
					return results, fmt.Errorf("%s, IPv%d, %s: %w", c.name, family, hook, err)
				}
				results = append(results, r)
			}
		}
	}
	if len(results) == 0 && tooSmall > 0 {
		return nil, fmt.Errorf("the cases with %q in their name need a table of more than %d flows", config.Only, config.Flows)
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("no case of the benchmark has %q in its name", config.Only)
	}
	return results, nil
}

// benchNetwork makes a namespace with a default route, so that routes of
// clients are real look-ups, and returns the interface's index.
func benchNetwork() (int, error) {
	ns, err := netns.New()
	if err != nil {
		return 0, err
	}
	defer ns.Close()
	for _, key := range []string{"ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+key, []byte("1"), 0o644); err != nil {
			return 0, err
		}
	}
	for _, key := range []string{"all", "default"} {
		os.WriteFile("/proc/sys/net/ipv6/conf/"+key+"/accept_dad", []byte("0"), 0o644)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "bench0"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "bench1"}
	if err := netlink.LinkAdd(veth); err != nil {
		return 0, err
	}
	for _, name := range []string{"lo", "bench0", "bench1"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return 0, err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return 0, err
		}
	}
	l, err := netlink.LinkByName("bench0")
	if err != nil {
		return 0, err
	}
	for _, net := range []struct{ address, gateway string }{{"198.18.0.1/24", "198.18.0.2"}, {"2001:db8:bb::1/64", "2001:db8:bb::2"}} {
		a, err := netlink.ParseAddr(net.address)
		if err != nil {
			return 0, err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return 0, err
		}
		gateway := netip.MustParseAddr(net.gateway).AsSlice()
		n := &netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: gateway, HardwareAddr: []byte{2, 0, 0, 0, 0, 9}}
		if err := netlink.NeighSet(n); err != nil {
			return 0, err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: gateway}); err != nil {
			return 0, err
		}
	}
	return l.Attrs().Index, nil
}

// bencher measures one case in one family.
type bencher struct {
	config    BenchConfig
	generator *ebpf.Collection
	index     int
	family    int
	hook      attach.Hook
	c         benchCase
	verdict   uint32 // of the packet that was timed last
}

// generatorParts are the generator's programs and map for a hook.
type generatorParts struct {
	vary, nothing, jumps string
	failed               uint32 // the verdict that says so
}

func (b *bencher) parts() generatorParts {
	if b.hook == attach.HookTCX {
		return generatorParts{"vary_tcx", "nothing_tcx", "jumps_tcx", 5}
	}
	return generatorParts{"vary", "nothing", "jumps", 0}
}

func (b *bencher) measure(ctx context.Context) (BenchResult, error) {
	if b.c.room {
		return b.measureRoom(ctx)
	}
	d, err := Open(Config{
		Hook: b.hook, detached: true, clockSet: b.c.aged,
		Source4: netip.MustParseAddr("198.18.0.1"), Source6: netip.MustParseAddr("2001:db8:bb::1"),
	})
	if err != nil {
		return BenchResult{}, err
	}
	defer d.Close()
	spec := b.c.spec()
	spec.Limits.Flows = b.config.Flows
	if b.c.aged {
		spec.Services[0].Timeouts.UDP = lb.Timeout(agedTimeout)
	}
	snapshot, err := lb.Compile(spec, nil, d.Caps())
	if err != nil {
		return BenchResult{}, err
	}
	if err := d.Apply(snapshot); err != nil {
		return BenchResult{}, err
	}
	for place := range d.tables.Backends {
		if d.tables.Backends[place].Family != 0 {
			d.tables.SetHop(place, nexthop.Hop{State: nexthop.Ready, IfIndex: b.index, MTU: 1600, Link: [6]byte{2, 1}, From: [6]byte{2, 2}})
		}
	}
	t, err := b.template(b.c.packet)
	if err != nil {
		return BenchResult{}, err
	}
	// Known flows: each is seen once before it is measured.
	if b.c.before != nil {
		before, err := b.template(*b.c.before)
		if err != nil {
			return BenchResult{}, err
		}
		if err := b.through(d.program(b.hook), before, max(b.c.flows, 1)); err != nil {
			return BenchResult{}, err
		}
	}
	fill := b.c.fill
	if b.c.flood {
		fill = 4 * b.config.Flows
	}
	if fill > 0 {
		if err := b.through(d.program(b.hook), t, fill); err != nil {
			return BenchResult{}, err
		}
		if err := b.prove(d); err != nil {
			return BenchResult{}, err
		}
		d.tables.WatchFlows(d.now(), d.clock)
		t.Next = uint64(fill)
	}
	aged := agedTable{b: b, d: d, t: t}
	if b.c.aged {
		if err := aged.fill(ctx); err != nil {
			return BenchResult{}, err
		}
	}
	counted := d.Counters()
	rounds, err := b.newRounds(t)
	if err != nil {
		return BenchResult{}, err
	}
	defer rounds.close()
	var all, floors []float64
	for range b.config.Rounds {
		if ctx.Err() != nil {
			return BenchResult{}, ctx.Err()
		}
		packets := b.config.Packets
		if b.c.aged {
			packets = min(packets, 1<<18)
		}
		floor, err := b.floor(t, packets)
		if err != nil {
			return BenchResult{}, err
		}
		var ns float64
		if b.c.aged {
			ns, err = aged.round(packets)
		} else {
			ns, err = b.time(d.program(b.hook), t, packets)
		}
		if err != nil {
			return BenchResult{}, err
		}
		if fill > 0 {
			t.Next += uint64(packets)
			d.tables.WatchFlows(d.now(), d.clock)
		}
		if err := rounds.measure(packets); err != nil {
			return BenchResult{}, err
		}
		all, floors = append(all, ns), append(floors, floor)
	}
	r := BenchResult{Case: b.c.name, Hook: b.hook.String(), Family: b.family, Flows: b.c.flows, NS: low(all), Floor: low(floors)}
	r.Net = r.NS - r.Floor
	r.Table = b.config.Flows
	r.InUse, _ = d.tables.FlowsAlive(d.now(), 1)
	r.Reason = counted.mostSince(d.Counters())
	rounds.tell(&r)
	return r, nil
}

// prove answers the flow of each source port, if the case is for proven ones.
func (b *bencher) prove(d *Datapath) error {
	if !b.c.proven {
		return nil
	}
	answer, err := b.template(benchPacket{toSNAT: true})
	if err != nil {
		return err
	}
	return b.through(d.program(b.hook), answer, snatPorts)
}

// floor times the generator alone.
func (b *bencher) floor(t *bpf.BenchTemplate, packets int) (float64, error) {
	return b.time(b.generator.Programs[b.parts().nothing], t, packets)
}

// low is the 20th percentile: the machine is shared, and what disturbs only adds.
func low(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/5]
}

// mostSince names the reason that most packets since an earlier reading had.
func (c Counters) mostSince(now Counters) string {
	var sums [lb.NumReasons]int64
	for i := range sums {
		sums[i] += int64(now.Other[i].Packets - c.Other[i].Packets)
		for name := range now.Services {
			sums[i] += int64(now.Services[name][i].Packets - c.Services[name][i].Packets)
		}
	}
	most := 0
	for i := range sums {
		if sums[i] > sums[most] {
			most = i
		}
	}
	return lb.Reason(most).String()
}

// through sends n packets and takes no time.
func (b *bencher) through(p *ebpf.Program, t *bpf.BenchTemplate, n int) error {
	_, err := b.time(p, t, n)
	return err
}

// time sends n packets of a template through a program and returns ns for each.
func (b *bencher) time(p *ebpf.Program, t *bpf.BenchTemplate, n int) (float64, error) {
	m := b.generator.Maps["templates"]
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
	if err := b.generator.Maps[b.parts().jumps].Put(uint32(0), p); err != nil {
		return 0, fmt.Errorf("point the generator at the program: %w", err)
	}
	var d time.Duration
	if b.verdict, d, err = b.generator.Programs[b.parts().vary].Benchmark(make([]byte, t.Length), n, nil); err != nil {
		return 0, fmt.Errorf("BPF_PROG_TEST_RUN: %w", err)
	}
	if b.verdict == b.parts().failed {
		return 0, fmt.Errorf("the generator failed")
	}
	return float64(d) / float64(time.Nanosecond), nil
}
