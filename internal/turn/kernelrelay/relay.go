package kernelrelay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	stdmaps "maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/nexthop"
)

const (
	defaultChannels = 1 << 14
	maxChannels     = 1 << 20
)

// Config is what the relaying of ChannelData in the kernel needs to know.
type Config struct {
	// Interfaces that packets of clients and of peers come in on; lo for those of this machine.
	Interfaces []string
	Hook       attach.Hook
	// MaxChannels bounds the table. Default 16384.
	MaxChannels int
	// Log gets what an operator should know; nil: silent.
	Log *slog.Logger
	// detached: nothing is attached, programs run by BPF_PROG_TEST_RUN with a clock that tests set.
	detached bool
	home     int // then: routes are requested as if packets came in there, and XDP may redirect to it
}

// Channel is one bound channel of an allocation over UDP (RFC 8656, section 12): what comes from Client to Listener
// with Number leaves from Relay to Peer without its header, and the other way round.
type Channel struct {
	Client, Listener, Relay, Peer netip.AddrPort
	Number                        uint16
	// BytesPerSecond bounds user data of both directions, with a credit of Burst bytes; 0: no bound. Channels of one
	// Allocation share it.
	BytesPerSecond, Burst uint64
	Allocation            uint64
}

// Traffic is what was relayed in one direction.
type Traffic struct {
	Packets, Bytes uint64    // of user data, without ChannelData headers
	Last           time.Time // zero: never
}

// Report is where the kernel relays, and why there.
type Report struct {
	Hook       string                   `json:"hook"` // xdp, tcx, mixed or none
	Interfaces []attach.InterfaceReport `json:"interfaces"`
	Channels   int                      `json:"channels" metric:"weir_turn_offload_channels" help:"Channels that the kernel relays."`
	Max        int                      `json:"max_channels"`
	Refused    map[string]uint64        `json:"refused" metric:"weir_turn_offload_refused_total" key:"reason" help:"Channels that stayed in user space, by reason."`      // channels that stayed in user space, by reason
	Packets    map[string]uint64        `json:"packets" metric:"weir_turn_offload_packets_total" key:"end" help:"Packets that the programs saw, by what became of them."` // by what became of them
}

// Errors of Add: the channel stays in user space.
var (
	ErrFull     = errors.New("the kernel's table of channels is full")
	ErrUnsuited = errors.New("the kernel does not relay such a channel")
	ErrNone     = errors.New("no interface relays in the kernel")
	errGone     = errors.New("no such channel in the kernel")
)

// Relay relays ChannelData of UDP clients in the kernel. Its methods may be called at the same time.
type Relay struct {
	config    Config
	log       *slog.Logger
	clock     maps.Clock
	namespace netns.NsHandle
	links     *netlink.Handle
	hops      *nexthop.Table
	stop      context.CancelFunc
	ended     chan struct{}
	stale     atomic.Bool // interfaces may have changed since outs were looked up

	mu       sync.Mutex // guards the rest
	attached []attach.Interface
	attaches []link.Link // of each attached one, or nil
	objects  map[attach.Hook]*ebpf.Collection
	tables   *relayTables // nil: nothing is attached
	channels map[uint32]*relayed
	ids      *maps.Quarantine
	buckets  *maps.Quarantine
	shares   map[uint64]*share
	refused  map[string]uint64
	undo     []func()

	onLoopback bool // lo is attached
}

// Open loads the programs and attaches them in the network namespace of the calling thread. With HookAuto it falls
// back from XDP to TCX and from there to nothing, which Report explains; with another hook that is an error.
func Open(c Config) (_ *Relay, err error) {
	c.MaxChannels = cmp.Or(c.MaxChannels, defaultChannels)
	if c.MaxChannels < 0 || c.MaxChannels > maxChannels {
		return nil, fmt.Errorf("%d channels in the kernel: at most %d", c.MaxChannels, maxChannels)
	}
	if len(c.Interfaces) == 0 && !c.detached {
		return nil, errors.New("no interface: name those that packets of clients and peers come in on")
	}
	o := &Relay{
		config: c, log: c.Log, objects: map[attach.Hook]*ebpf.Collection{}, channels: map[uint32]*relayed{},
		shares: map[uint64]*share{}, refused: map[string]uint64{},
		ids: maps.NewQuarantine(c.MaxChannels), buckets: maps.NewQuarantine(c.MaxChannels), namespace: netns.None(),
	}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	if o.clock, err = maps.KernelClock(); err != nil {
		return nil, err
	}
	if c.detached {
		o.clock = maps.Clock{Tick: time.Millisecond, Manual: true}
	}
	if o.namespace, err = netns.Get(); err != nil {
		return nil, fmt.Errorf("name the network namespace: %w", err)
	}
	if o.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := o.begin(); err != nil {
		return nil, err
	}
	return o, o.follow()
}

// begin attaches, or says why not.
func (o *Relay) begin() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.config.detached {
		_, err := o.object(o.config.Hook)
		return err
	}
	if err := o.plan(); err != nil {
		return err
	}
	if err := o.openRoutes(); err != nil {
		return o.none(err)
	}
	for i := range o.attached {
		if err := o.attach(i); err != nil {
			return err
		}
	}
	return nil
}

// follow keeps up with the kernel's routes and interfaces until Close.
func (o *Relay) follow() (err error) {
	ctx, stop := context.WithCancel(context.Background())
	o.stop, o.ended = stop, make(chan struct{})
	if o.hops, err = nexthop.Open(o.log); err != nil {
		close(o.ended)
		return err
	}
	o.hops.OnChange(func() {
		o.stale.Store(true)
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.tables != nil {
			atomic.AddUint32(&o.tables.control.Routes, 1)
		}
	})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		o.watch(ctx)
	}()
	go func() {
		defer close(o.ended)
		defer func() { <-watched }()
		if err := o.hops.Run(ctx); err != nil {
			o.log.Error("routes are not followed: relayed channels may use old ones for some seconds", "error", err)
			<-ctx.Done()
		}
	}()
	return nil
}

// Report looks at everything once.
func (o *Relay) Report() Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := Report{
		Hook: o.hookName(), Interfaces: []attach.InterfaceReport{}, Channels: len(o.channels), Max: o.config.MaxChannels,
		Refused: stdmaps.Clone(o.refused), Packets: map[string]uint64{},
	}
	for i := range o.attached {
		at := o.attached[i].Report()
		if o.attaches[i] == nil {
			at.Hook = hookNone
		}
		r.Interfaces = append(r.Interfaces, at)
	}
	if o.tables == nil {
		return r
	}
	var perCPU []bpf.Count
	for end, name := range o.tables.ends {
		if err := o.tables.Maps[bpf.TurnMapTurnCounts].Lookup(uint32(end), &perCPU); err != nil {
			continue
		}
		for _, c := range perCPU {
			r.Packets[name] += c.Packets
		}
	}
	return r
}

const hookNone = "none"

// hookName is what the interfaces have in common.
func (o *Relay) hookName() string {
	name := hookNone
	for i := range o.attached {
		switch hook := o.attached[i].Hook.String(); {
		case o.attaches[i] == nil || name == hook:
		case name == hookNone:
			name = hook
		default:
			return "mixed"
		}
	}
	return name
}

// Close detaches: packets reach the sockets again. Nothing stays.
func (o *Relay) Close() error {
	if o.stop != nil {
		o.stop()
		<-o.ended
		if o.hops != nil {
			o.hops.Close()
		}
		o.stop = nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for i, l := range o.attaches {
		if l != nil {
			errs = append(errs, l.Close())
			o.attaches[i] = nil
		}
	}
	for i := len(o.undo); i > 0; i-- {
		o.undo[i-1]()
	}
	o.undo = nil
	for _, c := range o.objects {
		c.Close()
	}
	o.objects = nil
	if o.tables != nil {
		o.tables.Close()
		o.tables = nil
	}
	if o.links != nil {
		o.links.Close()
		o.links = nil
	}
	if o.namespace.IsOpen() {
		o.namespace.Close()
	}
	return errors.Join(errs...)
}
