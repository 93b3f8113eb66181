package load

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Report is what happened to the datagrams of a phase. Durations in its JSON are in ns.
type Report struct {
	Rate         float64       `json:"rate"`       // the requested rate
	Elapsed      time.Duration `json:"elapsed_ns"` // of sending
	Halved       bool          `json:"halved"`     // the latency of Down is half of the round trip, because the far end is an echo server elsewhere
	Up           Flow          `json:"up"`         // empty for a direction that was not requested
	Down         Flow          `json:"down"`
	LastReceived time.Duration `json:"last_heard_ns"` // time from the start to the arrival of the last datagram
	// Overflowed is how many datagrams found our own sockets full. They are lost, but not by the server.
	Overflowed uint64 `json:"overflowed"`
	// Late is how many datagrams of earlier phases arrived in this one, after they had been counted as lost.
	Late     uint64   `json:"late"`
	Problems []string `json:"problems,omitempty"` // clients that the server would not refresh, and why
}

// Flow is one direction.
type Flow struct {
	Connections []Connection     `json:"connections,omitempty"`
	Sum         Connection       `json:"sum"`
	Latency     *measure.Latency `json:"latency,omitempty"` // of all the connections
}

// Connection is one client's share.
type Connection struct {
	ID         int            `json:"id"`
	Client     netip.AddrPort `json:"client"`
	Relay      netip.AddrPort `json:"relay"` // empty for plain UDP
	Sent       uint64         `json:"sent"`
	Refused    uint64         `json:"refused"`   // by our kernel; not in Sent
	Received   uint64         `json:"received"`  // each datagram once
	Lost       uint64         `json:"lost"`      // Sent - Received
	Reordered  uint64         `json:"reordered"` // arrived after one that was sent later
	Duplicates uint64         `json:"duplicates"`
	Damaged    uint64         `json:"damaged"` // wrong size, or the end did not match the header
	Bytes      uint64         `json:"bytes"`   // user data received
	Elapsed    time.Duration  `json:"elapsed_ns"`
	Jitter     time.Duration  `json:"jitter_ns"` // RFC 3550 section 6.4.1; of a sum: the mean
	Latency    Moments        `json:"latency"`
	LongestGap time.Duration  `json:"longest_gap_ns"` // between two arrivals, the begin and the end included
}

// Moments are what iperf prints of a distribution.
type Moments struct {
	Count uint64        `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	Min   time.Duration `json:"min_ns"`
	Max   time.Duration `json:"max_ns"`
	Stdev time.Duration `json:"stdev_ns"`
}

// LossShare is lost datagrams divided by sent ones, 0 to 1.
func (c *Connection) LossShare() float64 {
	if c.Sent == 0 {
		return 0
	}
	return float64(c.Lost) / float64(c.Sent)
}

// Rate is received datagrams per second.
func (c *Connection) Rate() float64 {
	if c.Elapsed <= 0 {
		return 0
	}
	return float64(c.Received) / c.Elapsed.Seconds()
}
