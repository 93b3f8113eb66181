package steertest

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Path is a data path under test. A new one is made for each case.
type Path interface {
	// Traits says what it can do. Called before Apply.
	Traits() Traits
	// Apply puts a snapshot in force.
	Apply(*lb.Snapshot) error
	// Packet gives one packet, an Ethernet frame or an IP packet, at now. The
	// bytes are the path's to change.
	Packet(data []byte, frame bool, now time.Duration) (Result, error)
}

// Traits are what a data path can do.
type Traits struct {
	Caps lb.Caps
	// Router: it lowers the hop limit itself.
	Router bool
	// NoBytes: it decides, and does not give the bytes as they leave.
	NoBytes bool
	// AsMark: services of mode l2dsr run in mode mark, each backend with a mark of its own, for a path that can do nothing
	// else: decisions are the same, and no byte changes in either.
	AsMark bool
	// Has lists words that steps may need: "clock" (it goes by the given time),
	// "hold" (early fragments wait), "exact" (tables hold exactly their limit),
	// "rate" (new_flow_rate), "malformed" (it sees packets the kernel would discard), "answer" (it answers pings itself).
	Has []string
}

func (t Traits) has(word string) bool {
	return word == "router" && t.Router || slices.Contains(t.Has, word)
}

// Result is what became of a packet.
type Result struct {
	Action           lb.Action
	Reason           lb.Reason
	Service, Backend string
	Mark             uint32 // the fwmark it got, 0 for none; also of packets that pass
	Out              []byte // the IP packet as it leaves, if forwarded; its reply, if answered
}

// Source4 and Source6 are the outer sources of tunnels in the corpus.
func Source4() netip.Addr { return netip.MustParseAddr("198.51.100.1") }

// Source6 is the IPv6 counterpart of Source4.
func Source6() netip.Addr { return netip.MustParseAddr("2001:db8:51::1") }
