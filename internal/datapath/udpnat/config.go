package udpnat

import (
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/weir-lb/weir/internal/datapath/kernelnat"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Defaults of Config.
const (
	DefaultMaxEntries      = 10000
	DefaultBackendTimeout  = 15 * time.Second
	DefaultUnansweredLimit = 3
	DefaultUnansweredAfter = 2 * time.Second
	// Never disables a timeout.
	Never time.Duration = -1
)

// maxEntries exceeds the number of descriptors that a process may have.
const maxEntries = 1 << 22

// Config says how to open a Datapath. The zero value works.
type Config struct {
	// Workers is the number of workers, each with its own sockets; default one per core.
	Workers int
	// MaxEntries bounds the NAT entries of all workers; default: the snapshot's limits.flows.
	MaxEntries int
	// Reverse starts with reverse address update on: a reply from another backend of the service than the
	// entry's own moves the entry there.
	Reverse bool
	// Unconnected leaves outgoing sockets unconnected also while Reverse is off, so that replies from other addresses are
	// counted (Counters.WrongRouted). Each datagram then costs a route look-up, and the sockets do not report ICMP errors.
	Unconnected bool
	// DTLSFilter drops datagrams from clients that are not DTLS records.
	DTLSFilter bool
	// BackendTimeout is the time without any reply after which a backend becomes stale, and the time after which a stale
	// backend is tried again; default DefaultBackendTimeout; Never disables the watch.
	BackendTimeout time.Duration
	// UnansweredLimit and UnansweredAfter make a backend stale earlier: when this many datagrams had no reply from it, and
	// the first of them was sent this long ago. Only datagrams of flows that had replies before count. A flow that never had
	// a reply moves by itself after the same number. Limit 0 is the default, below 0 disables the rule.
	UnansweredLimit int
	UnansweredAfter time.Duration
	// Faults is the initial setting of the faults.
	Faults Faults
	// ReadBuffer is the kernel's receive buffer of each VIP socket in bytes; default 4 MiB.
	ReadBuffer int
	// Offload forwards established flows in the kernel, in front of user space; nil: user space forwards everything. The
	// caller closes it after Close.
	Offload *kernelnat.Table
	// Log receives warnings for the operator, rate-limited. Default: nothing is logged.
	Log *slog.Logger
	// Now is the clock, any monotonic offset. Default: time since Open. It is called by several goroutines.
	Now func() time.Duration
	// OnLiveness is called when a backend becomes stale (silent) or answers again. It may call Apply; one goroutine calls
	// it. Nil leaves stale backends in the snapshot, and their flows where they are.
	OnLiveness func(backend lb.Target, silent bool)
}

func (c *Config) setDefaults() error {
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.BackendTimeout == 0 {
		c.BackendTimeout = DefaultBackendTimeout
	}
	if c.UnansweredLimit == 0 {
		c.UnansweredLimit = DefaultUnansweredLimit
	}
	if c.UnansweredAfter == 0 {
		c.UnansweredAfter = DefaultUnansweredAfter
	}
	if c.ReadBuffer == 0 {
		c.ReadBuffer = 4 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Duration { return time.Since(start) }
	}
	switch {
	case c.Workers < 1 || c.Workers > 256:
		return fmt.Errorf("%d workers: want 1 to 256", c.Workers)
	case c.MaxEntries < 0 || c.MaxEntries > maxEntries:
		return fmt.Errorf("%d NAT entries: want 1 to %d", c.MaxEntries, maxEntries)
	case c.BackendTimeout < 0 && c.BackendTimeout != Never:
		return fmt.Errorf("backend time-out %s: want a positive time or Never", c.BackendTimeout)
	case c.UnansweredAfter < 0:
		return fmt.Errorf("unanswered time %s: want a positive time", c.UnansweredAfter)
	}
	return c.Faults.validate()
}

// Caps returns what this data path can do, for lb.Compile. A prefix VIP (also 0.0.0.0/0 and ::/0) is served by a socket on
// every address; the host must treat the addresses of the prefix as local.
func Caps() lb.Caps {
	return lb.Caps{
		Name: "udp", Protocols: []uint8{lb.UDP}, Modes: []lb.Mode{lb.NAT},
		CID: true, MaskedCID: true, Prefixes: true, IPv4: true, IPv6: true, CrossFamily: true, LocalVIPs: true,
	}
}
