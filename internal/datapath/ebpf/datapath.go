package ebpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Config is what a data path needs to know before its first snapshot.
type Config struct {
	// Interfaces that packets of clients, and in mode NAT of backends, come in on.
	Interfaces []string
	Hook       attach.Hook
	// Log gets what an operator should know; nil: silent.
	Log *slog.Logger
	// Source4 and Source6 are the outer sources of L3-DSR tunnels. Default: the
	// address that the route to the backend prefers.
	Source4, Source6 netip.Addr
	// PinPath is a directory of a bpf file system that keeps tables and programs
	// at work while no process does, and over a restart. Empty: Close ends all.
	PinPath string
	// Last puts TCX programs behind those that are there, instead of before them.
	Last bool
	// NoPeers leaves the other ends of veth pairs alone.
	NoPeers bool
	// Front: the programs stand before a queue that decides by the same snapshot. What has no backend here passes without a
	// mark instead of being dropped or held: fragments before their first one, ICMP errors of flows unknown here, SCTP, odd
	// headers. Mode mark and HookTCX only.
	Front bool

	// detached: nothing is attached, programs run by BPF_PROG_TEST_RUN.
	detached bool
	// manual makes the clock one that tests set, and records verdicts.
	manual bool
	// clockSet makes the clock one that the benchmark sets.
	clockSet bool
}

// Datapath is the kernel data path. Apply, Counters, Flows and Close may be
// called while Run runs; Apply and Close from one goroutine at a time.
type Datapath struct {
	config    Config
	log       *slog.Logger
	clock     maps.Clock
	attached  []attach.Interface
	hops      *nexthop.Table
	links     *netlink.Handle
	pins      *pins.Dir   // nil: nothing outlives this process
	store     *pins.Store // from the first Apply on
	restored  bool        // tables were found in the pins
	inPlace   bool        // every program is attached
	namespace netns.NsHandle
	inherited bool          // programs were at work in the pins before this start
	holds     atomic.Bool   // Run is ready to take early fragments
	answers   chan struct{} // Run sends on it to whoever waits in Respond

	heldEvicted atomic.Uint64 // FragmentEvictions.Held

	mu       sync.Mutex // guards the rest
	tables   *maps.Tables
	objects  map[attach.Hook]*ebpf.Collection
	injector *ebpf.Program // gives held fragments back
	closing  []func() error
	state    state
	snapshot *lb.Snapshot
	given    []given // by number of a flow; nil: no other balancer has given any
}

// Open checks that the kernel can do what config requests. Programs are loaded
// and attached by the first Apply, which knows the sizes of the tables.
func Open(config Config) (*Datapath, error) {
	if len(config.Interfaces) == 0 && !config.detached {
		return nil, errors.New("no interface: name those that packets for VIPs come in on")
	}
	if config.Front && config.Hook != attach.HookTCX {
		return nil, errors.New("a program in front of a queue needs the TCX hook")
	}
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Datapath{config: config, log: log, objects: map[attach.Hook]*ebpf.Collection{}, answers: make(chan struct{})}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.closeOpened())
	}
	return d, nil
}

// open takes what lives until Close: the clock, the pins, next hops, netlink and the name of the network namespace.
func (d *Datapath) open() (err error) {
	if d.clock, err = maps.KernelClock(); err != nil {
		return err
	}
	if d.config.manual || d.config.clockSet {
		d.clock = maps.Clock{Tick: time.Millisecond, Manual: true}
	}
	if err = d.openPins(); err != nil {
		return err
	}
	if d.attached, err = attach.Plan(d.config.Interfaces, d.config.Hook, d.pins.Programs()); err != nil {
		return err
	}
	if d.hops, err = nexthop.Open(d.log); err != nil {
		return err
	}
	if d.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	if d.namespace, err = netns.Get(); err != nil {
		return fmt.Errorf("find the network namespace: %w", err)
	}
	return nil
}

// closeOpened closes what open has opened so far.
func (d *Datapath) closeOpened() error {
	if d.links != nil {
		d.links.Close()
	}
	if d.hops != nil {
		d.hops.Close()
	}
	return d.closePins()
}

// Caps says what the data path can do; mode mark needs every interface on TCX.
func (d *Datapath) Caps() lb.Caps {
	caps := Caps(d.config.Hook)
	for _, a := range d.attached {
		if a.Hook == attach.HookXDP {
			caps = Caps(attach.HookXDP)
		}
	}
	return caps
}

// Caps are those of one hook.
func Caps(hook attach.Hook) lb.Caps {
	caps := lb.Caps{
		Name:      "ebpf",
		Protocols: []uint8{lb.TCP, lb.UDP},
		Modes:     []lb.Mode{lb.NAT, lb.L2DSR, lb.L3DSR},
		Tunnels:   []lb.Tunnel{lb.IPIP, lb.GUE},
		CID:       true, MaxLayouts: bpf.MaxLayouts,
		Prefixes: true, PortRanges: true,
		IPv4: true, IPv6: true,
		SNAT: true, Outbound: true, HoldFragments: true, Reject: true, Sync: true, Decap: true,
		MaxFlows: maps.MaxFlows, FixedLimits: true,
	}
	if hook != attach.HookXDP {
		caps.Modes = append(caps.Modes, lb.Mark)
	}
	return caps
}

// Run keeps next hops, held fragments and the tables in order until ctx ends.
// Packets are carried without it too, by what is in the maps.
func (d *Datapath) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	jobs := []func(context.Context) error{d.sweep}
	jobs = append(jobs, d.hops.Run, d.runHeld, d.reclaimTables)
	ended := make(chan error, len(jobs))
	for _, job := range jobs {
		go func() { ended <- job(ctx) }()
	}
	var err error
	for range jobs {
		if e := <-ended; e != nil && err == nil {
			err = e
		}
		cancel()
	}
	return err
}

// Respond returns when the loop of Run has answered, or when ctx ends: a watchdog calls it.
func (d *Datapath) Respond(ctx context.Context) {
	select {
	case <-d.answers:
	case <-ctx.Done():
	}
}

// Abandon is Close for a start that failed. Programs that this start attached go, and all that it changed on the machine is
// taken back, unless they replaced those of an earlier run, or Run has served already: then they stay at work.
func (d *Datapath) Abandon() error {
	if d.pins == nil || d.inherited || d.holds.Load() && d.hops.Followed() {
		return d.Close()
	}
	d.mu.Lock()
	var errs []error
	for _, pin := range d.pins.Links() {
		errs = append(errs, d.pins.Detach(pin))
	}
	if d.store != nil {
		d.store.Undo(&v1.EBPFStopped{}, d.log)
	}
	d.inPlace = false
	d.mu.Unlock()
	return errors.Join(append(errs, d.Close())...)
}

// Close leaves a pinned data path at work; Stop ends it. Without pins it
// detaches and unloads.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for i := len(d.closing); i > 0; i-- {
		errs = append(errs, d.closing[i-1]())
	}
	d.closing = nil
	for _, c := range d.objects {
		c.Close()
	}
	d.objects, d.given = nil, nil
	if d.tables != nil {
		d.tables.Close()
	}
	d.store.Close()
	d.hops.Close()
	d.links.Close()
	errs = append(errs, d.closePins())
	d.namespace.Close()
	return errors.Join(errs...)
}
