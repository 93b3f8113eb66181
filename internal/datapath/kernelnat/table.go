package kernelnat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	stdmaps "maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
)

const (
	defaultFlows = 1 << 14
	// MaxFlows bounds Config.MaxFlows.
	MaxFlows = 1 << 18
	// maxTargets bounds what datagrams are counted by.
	maxTargets = 1 << 10
)

// Config says how to open a Table. The zero value works.
type Config struct {
	// MaxFlows bounds the table. Default 16384.
	MaxFlows int
	// Log gets what an operator should know; nil: silent.
	Log *slog.Logger
}

// Table holds the flows that the kernel forwards. Its methods may be called at the same time, those with an id of one flow only
// one after the other.
type Table struct {
	config    Config
	log       *slog.Logger
	clock     maps.Clock
	namespace netns.NsHandle
	netlink   *netlink.Handle
	routes    atomic.Uint32 // number of the routing state
	blind     atomic.Bool   // routes are not followed
	stop      context.CancelFunc
	ended     chan struct{}

	// lookedUp is the routing state that a flow was looked up with, by id. Only who has the id uses it.
	lookedUp []uint32

	// What follows is the memory of the maps, and does not change until Close.
	collection *ebpf.Collection
	memory     maps.Tables
	control    *bpf.UDPNATControl
	entries    []bpf.UDPNATEntry // by twice the id of a flow, and one more towards the client
	used       []uint64          // by id
	counts     []bpf.UDPNATCount // of each CPU, by target
	ends       []string          // names of enum udpnat_end

	mu        sync.Mutex // guards the rest
	closed    bool
	ids       *maps.Quarantine
	targets   *maps.Quarantine
	flows     int
	hops      map[hopKey]hop // of the routing state hopsOf
	hopsOf    uint32
	attached  map[int]attachment // by interface index
	refused   map[string]uint64
	reportErr error // last error of reading counters, logged once
}

// attachment is an interface with the program on it, or the reason why there is none.
type attachment struct {
	at   attach.Interface
	link link.Link
	err  error
}

// Report is what the kernel forwards, and where.
type Report struct {
	Interfaces []attach.InterfaceReport `json:"interfaces"`
	Flows      int                      `json:"flows" metric:"weir_nat_offload_flows" help:"NAT entries whose datagrams the kernel forwards."`
	MaxFlows   int                      `json:"max_flows" metric:"weir_nat_offload_max_flows" help:"Bound on the NAT entries whose datagrams the kernel forwards."`
	Refused    map[string]uint64        `json:"refused" metric:"weir_nat_offload_refused_total" key:"reason" help:"Attempts to hand a NAT entry to the kernel that failed, by reason: the entry stays in user space."`
	Packets    map[string]uint64        `json:"packets" metric:"weir_nat_offload_packets_total" key:"end" help:"Packets that the program saw on its interfaces, by what became of them."`
}

// Open loads the program in the network namespace of the calling thread. No interface is attached yet. It needs CAP_BPF,
// CAP_NET_ADMIN and CAP_PERFMON.
func Open(c Config) (_ *Table, err error) {
	c.MaxFlows = cmp.Or(c.MaxFlows, defaultFlows)
	if c.MaxFlows < 1 || c.MaxFlows > MaxFlows {
		return nil, fmt.Errorf("%d flows in the kernel: want 1 to %d", c.MaxFlows, MaxFlows)
	}
	t := &Table{
		config: c, log: c.Log, namespace: netns.None(),
		ids: maps.NewQuarantine(c.MaxFlows), targets: maps.NewQuarantine(maxTargets - 1), lookedUp: make([]uint32, c.MaxFlows+1),
		hops: map[hopKey]hop{}, attached: map[int]attachment{}, refused: map[string]uint64{},
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			_ = t.Close()
		}
	}()
	if t.clock, err = maps.KernelClock(); err != nil {
		return nil, err
	}
	if t.namespace, err = netns.Get(); err != nil {
		return nil, fmt.Errorf("name the network namespace: %w", err)
	}
	if t.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := t.load(); err != nil {
		return nil, err
	}
	if err := t.probe(); err != nil {
		return nil, err
	}
	atomic.StoreUint32(&t.control.Epoch, 1) // empty entries have 0
	return t, t.follow()
}

// probe attaches the program for a moment, so that a kernel that cannot is known now and not at the first flow.
func (t *Table) probe() error {
	lo := attach.Interface{Name: "lo", Index: bpf.Loopback, Hook: attach.HookTCX}
	l, err := lo.Attach(t.collection.Programs[bpf.UDPNATProgWeirUdpnat], false)
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("detach from lo: %w", err)
	}
	return nil
}

// load loads the program and maps its tables into memory.
func (t *Table) load() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("lift the limit on locked memory: %w", err)
	}
	spec, err := bpf.LoadUDPNAT()
	if err != nil {
		return fmt.Errorf("read the program of the NAT: %w", err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count processors: %w", err)
	}
	flows := uint32(t.config.MaxFlows + 1) // ids begin at 1
	for name, entries := range map[string]uint32{
		bpf.UDPNATMapUdpnatKeys: 2 * flows, bpf.UDPNATMapUdpnatEntries: 2 * flows, bpf.UDPNATMapUdpnatUsed: flows,
		bpf.UDPNATMapUdpnatCounts: uint32(cpus) * maxTargets,
	} {
		spec.Maps[name].MaxEntries = entries
	}
	if err := spec.Variables[bpf.UDPNATVarUdpnatTargets].Set(uint32(maxTargets)); err != nil {
		return fmt.Errorf("set the size of the NAT's counters: %w", err)
	}
	if t.collection, err = maps.Load(nil, spec, "program of the NAT"); err != nil {
		return err
	}
	t.memory.Maps = t.collection.Maps
	for name, to := range map[string]func([]byte){
		bpf.UDPNATMapUdpnatControls: func(b []byte) { t.control = (*bpf.UDPNATControl)(unsafe.Pointer(&b[0])) },
		bpf.UDPNATMapUdpnatEntries:  func(b []byte) { t.entries = maps.View[bpf.UDPNATEntry](b) },
		bpf.UDPNATMapUdpnatUsed:     func(b []byte) { t.used = maps.View[uint64](b) },
		bpf.UDPNATMapUdpnatCounts:   func(b []byte) { t.counts = maps.View[bpf.UDPNATCount](b) },
	} {
		b, err := t.memory.Mmap(name)
		if err != nil {
			return err
		}
		to(b)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName("udpnat_end", &enum); err != nil {
		return fmt.Errorf("enum udpnat_end in the object: %w", err)
	}
	for _, v := range enum.Values[:len(enum.Values)-1] {
		t.ends = append(t.ends, strings.ToLower(strings.TrimPrefix(v.Name, "UDPNAT_")))
	}
	return nil
}

// follow ends the epoch whenever the kernel's routes, addresses or links change, until Close.
func (t *Table) follow() error {
	events, err := nexthop.Open(t.log)
	if err != nil {
		return err
	}
	events.OnRoutes(func() {
		t.routes.Add(1)
		t.Advance()
	})
	ctx, stop := context.WithCancel(context.Background())
	t.stop, t.ended = stop, make(chan struct{})
	go func() {
		defer close(t.ended)
		defer events.Close()
		if err := events.Run(ctx); err != nil {
			t.log.Error("routes are not followed: no flow is forwarded in the kernel any longer", "error", err)
			t.blind.Store(true)
			t.routes.Add(1)
			t.Advance()
		}
	}()
	return nil
}

// Report looks at everything once.
func (t *Table) Report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := Report{
		Interfaces: []attach.InterfaceReport{}, Flows: t.flows, MaxFlows: t.config.MaxFlows,
		Refused: stdmaps.Clone(t.refused), Packets: map[string]uint64{},
	}
	for _, a := range t.attached {
		report := a.at.Report()
		if a.err != nil {
			report.Hook, report.Why = "none", a.err.Error()
		}
		r.Interfaces = append(r.Interfaces, report)
	}
	slices.SortFunc(r.Interfaces, func(a, b attach.InterfaceReport) int { return strings.Compare(a.Name, b.Name) })
	if t.closed {
		return r
	}
	var perCPU []uint64
	for end, name := range t.ends {
		if err := t.collection.Maps[bpf.UDPNATMapUdpnatEnds].Lookup(uint32(end), &perCPU); err != nil {
			if t.reportErr == nil {
				t.log.Warn("read the counters of the NAT's program", "error", err)
			}
			t.reportErr = err
			continue
		}
		for _, n := range perCPU {
			r.Packets[name] += n
		}
	}
	return r
}

// Close takes the program off every interface: all datagrams reach the sockets again. No other method may run or follow, except
// Report.
func (t *Table) Close() error {
	if t.stop != nil {
		t.stop()
		<-t.ended
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	var errs []error
	for _, a := range t.attached {
		if a.link != nil {
			errs = append(errs, a.link.Close())
		}
	}
	t.attached = map[int]attachment{}
	t.memory.Close()
	if t.collection != nil {
		t.collection.Close()
	}
	if t.netlink != nil {
		t.netlink.Close()
	}
	if t.namespace.IsOpen() {
		errs = append(errs, t.namespace.Close())
	}
	return errors.Join(errs...)
}
