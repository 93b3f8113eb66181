package load

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/lab/measure"
)

// Report is what became of the datagrams of a phase.
type Report struct {
	Rate      float64       // asked for
	Elapsed   time.Duration // of sending
	Halved    bool          // latency of Down is the round trip halved: the far end is an echo elsewhere
	Up, Down  Flow          // a flow of a direction that was not asked for is empty
	LastHeard time.Duration // since the begin, when the last datagram arrived
	// Overflowed is how many datagrams found our own sockets full: lost, and not by the server.
	Overflowed uint64
	Problems   []string // clients that the server would not refresh, and why
}

// Flow is one direction.
type Flow struct {
	Connections []Connection
	Sum         Connection
	// Latency of all the connections; nil without a datagram.
	Latency *measure.Latency
}

// Connection is one client's share.
type Connection struct {
	ID            int
	Client, Relay netip.AddrPort // Relay: invalid for plain UDP
	Sent          uint64         // by us
	Refused       uint64         // by our kernel; not in Sent
	Received      uint64         // each datagram once
	Lost          uint64         // Sent - Received
	Reordered     uint64         // came after one that was sent later
	Duplicates    uint64
	Damaged       uint64 // of another size, or the fill differed
	Bytes         uint64 // user data received
	Elapsed       time.Duration
	Jitter        time.Duration // RFC 3550 section 6.4.1
	Latency       Moments
	LongestGap    time.Duration // between two arrivals, the begin and the end included
}

// Moments are what iperf prints of a distribution.
type Moments struct {
	Count                 uint64
	Mean, Min, Max, Stdev time.Duration
}

// LossShare is lost by sent, 0 to 1.
func (c *Connection) LossShare() float64 {
	if c.Sent == 0 {
		return 0
	}
	return float64(c.Lost) / float64(c.Sent)
}

// Rate is received datagrams a second.
func (c *Connection) Rate() float64 {
	if c.Elapsed <= 0 {
		return 0
	}
	return float64(c.Received) / c.Elapsed.Seconds()
}
