package nfqueue

import (
	"fmt"
	"log/slog"
	"math/bits"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Defaults of Config.
const (
	DefaultLength    = 4096
	DefaultCopyRange = 256
	DefaultBatch     = 256
	DefaultSpin      = 20 * time.Microsecond
)

// Bounds of Config.
const (
	MaxQueues    = 64
	MaxLength    = 1 << 20
	MinCopyRange = 64
	MaxCopyRange = 65531 // the maximum of a netlink attribute
	MaxBatch     = 1024
)

// Config says how to open a Datapath. The zero value serves queue 0.
type Config struct {
	// First and Count are the queues: First, First+1, …; Count 0 is one.
	First uint16
	Count int
	// Length is how many packets may wait for a verdict in each queue; 0: DefaultLength.
	Length int
	// CopyRange is how many bytes of a packet are looked at, from its IP header on; 0: DefaultCopyRange.
	CopyRange int
	// Batch is how many packets one system call reads, and how many one answers; 0: DefaultBatch.
	Batch int
	// FailOpen lets packets that find the queue full continue without a mark on the ordinary routes, instead of dropping
	// them.
	FailOpen bool
	// ReceiveBuffer of each queue's socket in bytes; 0: enough for Length packets.
	ReceiveBuffer int
	// Spin is how long a worker with frequent packets polls for the next one before it sleeps; 0: DefaultSpin, negative:
	// never.
	Spin time.Duration
	// FlowFile is where flows are kept for the next process; "": nowhere. With DropFlows they end with Close.
	FlowFile  string
	DropFlows bool
	// Log receives warnings for the operator, rate-limited. Nil: nothing is logged.
	Log *slog.Logger
	// Now is the clock, any monotonic offset. Nil: time since Open. Called by every worker.
	Now func() time.Duration
}

func (c *Config) setDefaults() error {
	for _, field := range []struct {
		value          *int
		name           string
		otherwise, low int
		top            int
	}{
		{&c.Count, "queues", 1, 1, MaxQueues},
		{&c.Length, "queue length", DefaultLength, 1, MaxLength},
		{&c.CopyRange, "copy range", DefaultCopyRange, MinCopyRange, MaxCopyRange},
		{&c.Batch, "batch", DefaultBatch, 1, MaxBatch},
		{&c.ReceiveBuffer, "receive buffer", 0, 4096, 1 << 30},
	} {
		if *field.value == 0 {
			*field.value = field.otherwise
			continue
		}
		if *field.value < field.low || *field.value > field.top {
			return fmt.Errorf("%s %d: write %d to %d", field.name, *field.value, field.low, field.top)
		}
	}
	if last := int(c.First) + c.Count - 1; last > 65535 {
		return fmt.Errorf("queues %d to %d: the last queue is 65535", c.First, last)
	}
	if c.ReceiveBuffer == 0 {
		c.ReceiveBuffer = bufferFor(c.Length, c.CopyRange)
	}
	switch {
	case c.Spin == 0:
		c.Spin = DefaultSpin
	case c.Spin < 0:
		c.Spin = 0
	case c.Spin > time.Millisecond:
		return fmt.Errorf("spin %s: write at most 1ms", c.Spin)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Duration { return time.Since(start) }
	}
	return nil
}

// The memory that one message takes in a socket in addition to the packet's bytes: other attributes, and the kernel's own
// structures.
const (
	messageOverhead = 512
	bufferOverhead  = 768
)

// bufferFor returns the SO_RCVBUF that holds length packets; the kernel doubles it.
func bufferFor(length, copyRange int) int {
	slab := 1 << bits.Len(uint(copyRange+messageOverhead-1))
	return max(length*(slab+bufferOverhead)/2, 1<<17)
}

// Caps returns what this data path can do, for lb.Compile.
func Caps() lb.Caps {
	return lb.Caps{
		Name:      "nfqueue",
		Protocols: []uint8{lb.TCP, lb.UDP, lb.SCTP},
		Modes:     []lb.Mode{lb.Mark},
		CID:       true, MaskedCID: true,
		Prefixes: true, PortRanges: true,
		IPv4: true, IPv6: true,
		HoldFragments: true, FixedLimits: true,
		Flows: true, Tier: true, ReservedMarks: true, SCTPPorts: true, Stateless: true, NFQLB: true,
	}
}

// Validate returns the error that Open would report about the configuration itself.
func (c Config) Validate() error { return c.setDefaults() }
