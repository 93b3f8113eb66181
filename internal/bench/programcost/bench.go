package programcost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/generator"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Config says how long to measure. The zero value is replaced by defaults.
type Config struct {
	Rounds  int           // of each case; the result is their 20th percentile. Default 9
	Packets int           // of one case in one round. Default 262144
	Flows   int           // limits.flows: the size of Weir's table and of the LRU table. Default 1<<20
	Hooks   []attach.Hook // Default both
	Only    string        // cases with this in their name; empty: all
	// Progress is called with what is being measured; may be nil.
	Progress func(what string)
}

// Result is one case in one family, a public type.
type Result = v1.ProgramCost

// Run measures the programs by BPF_PROG_TEST_RUN, in a network namespace
// of its own. Needs root.
func Run(ctx context.Context, config Config) ([]Result, error) {
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
		results []Result
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
		results, err := run(ctx, config)
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

func run(ctx context.Context, config Config) (results []Result, err error) {
	index, err := network()
	if err != nil {
		return nil, fmt.Errorf("network namespace for the benchmark: %w", err)
	}
	objects, err := generator.Load()
	if err != nil {
		return nil, err
	}
	defer objects.Close()
	tooSmall := 0 // cases that need a larger table
	for _, c := range scenarios() {
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
				b := bencher{Generator: generator.Generator{Objects: objects, Index: index, Family: family, Hook: hook, Flows: c.flows}, config: config, c: c}
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

// network makes a namespace with a default route, so that routes of
// clients are real look-ups, and returns the interface's index.
func network() (int, error) {
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
	generator.Generator
	config Config
	c      scenario
}

func (b *bencher) measure(ctx context.Context) (Result, error) {
	if b.c.room {
		return b.measureRoom(ctx)
	}
	d, err := b.open()
	if err != nil {
		return Result{}, err
	}
	defer d.Close()
	t, err := b.Template(b.c.packet)
	if err != nil {
		return Result{}, err
	}
	aged := agedTable{b: b, d: d, t: t}
	if err := b.fill(ctx, &aged); err != nil {
		return Result{}, err
	}
	counted := d.Counters()
	compared, err := b.newComparison(t)
	if err != nil {
		return Result{}, err
	}
	defer compared.close()
	var all, floors []float64
	for range b.config.Rounds {
		ns, floor, err := b.round(ctx, &aged, compared)
		if err != nil {
			return Result{}, err
		}
		all, floors = append(all, ns), append(floors, floor)
	}
	r := Result{Case: b.c.name, Hook: b.Hook.String(), Family: b.Family, Flows: b.c.flows, NS: low(all), Floor: low(floors)}
	r.Net = r.NS - r.Floor
	r.Table = b.config.Flows
	r.InUse, _ = d.Tables().FlowsAlive(d.Now(), 1)
	r.Reason = mainReason(counted, d.Counters())
	compared.report(&r)
	return r, nil
}

// open makes a data path for the case, whose backends can be reached.
func (b *bencher) open() (*ebpf.Unattached, error) {
	d, err := ebpf.OpenUnattached(b.Hook, netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:bb::1"), b.c.aged)
	if err != nil {
		return nil, err
	}
	spec := b.c.spec()
	spec.Limits.Flows = b.config.Flows
	if b.c.aged {
		spec.Services[0].Timeouts.UDP = lb.Timeout(agedTimeout)
	}
	snapshot, err := lb.Compile(spec, nil, d.Caps())
	if err == nil {
		err = d.Apply(snapshot)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	for record := range d.Tables().Backends {
		if d.Tables().Backends[record].Family != 0 {
			d.Tables().SetHop(record, nexthop.Hop{State: nexthop.Ready, IfIndex: b.Index, MTU: 1600, Link: [6]byte{2, 1}, From: [6]byte{2, 2}})
		}
	}
	return d, nil
}

// filled is how many new flows are sent before the first round, and whether every round sends new ones.
func (b *bencher) filled() int {
	if b.c.flood {
		return 4 * b.config.Flows
	}
	return b.c.fill
}

// fill brings the tables into the state that the case is about.
func (b *bencher) fill(ctx context.Context, aged *agedTable) error {
	d, t := aged.d, aged.t
	// Known flows: each is seen once before it is measured.
	if b.c.before != nil {
		before, err := b.Template(*b.c.before)
		if err != nil {
			return err
		}
		if err := b.Through(d.Program(), before, max(b.c.flows, 1)); err != nil {
			return err
		}
	}
	if n := b.filled(); n > 0 {
		if err := b.Through(d.Program(), t, n); err != nil {
			return err
		}
		if err := b.prove(d); err != nil {
			return err
		}
		d.Tables().WatchFlows(d.Now(), d.Clock())
		t.Next = uint64(n)
	}
	if b.c.aged {
		return aged.fill(ctx)
	}
	return nil
}

// round measures the program, the generator alone and what the case is compared with, once each.
func (b *bencher) round(ctx context.Context, aged *agedTable, compared *comparison) (ns, floor float64, err error) {
	if ctx.Err() != nil {
		return 0, 0, ctx.Err()
	}
	d, t := aged.d, aged.t
	packets := b.config.Packets
	if b.c.aged {
		packets = min(packets, 1<<18)
	}
	if floor, err = b.floor(t, packets); err != nil {
		return 0, 0, err
	}
	if b.c.aged {
		ns, err = aged.round(packets)
	} else {
		ns, err = b.Time(d.Program(), t, packets)
	}
	if err != nil {
		return 0, 0, err
	}
	if b.filled() > 0 {
		t.Next += uint64(packets)
		d.Tables().WatchFlows(d.Now(), d.Clock())
	}
	return ns, floor, compared.measure(packets)
}

// prove answers the flow of each source port, if the case is for proven ones.
func (b *bencher) prove(d *ebpf.Unattached) error {
	if !b.c.proven {
		return nil
	}
	answer, err := b.Template(generator.Packet{ToSNAT: true})
	if err != nil {
		return err
	}
	return b.Through(d.Program(), answer, generator.SNATPorts)
}

// floor times the generator alone.
func (b *bencher) floor(t *bpf.BenchTemplate, packets int) (float64, error) {
	return b.Time(b.Nothing(), t, packets)
}

// low is the 20th percentile: the machine is shared, and what disturbs only adds.
func low(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/5]
}

// mainReason names the reason that most packets since an earlier reading had.
func mainReason(c, now ebpf.Counters) string {
	var sums [lb.NumReasons]int64
	for i := range sums {
		sums[i] += int64(now.Other[i].Packets - c.Other[i].Packets)
		for name := range now.Services {
			sums[i] += int64(now.Services[name][i].Packets - c.Services[name][i].Packets)
		}
	}
	main := 0
	for i := range sums {
		if sums[i] > sums[main] {
			main = i
		}
	}
	return lb.Reason(main).String()
}
