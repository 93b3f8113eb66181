package v1

import (
	"net/netip"
	"time"
)

// TurnLoad is what `weir bench traffic turn` prints: what happened to the datagrams of one phase.
type TurnLoad = TurnLoadOf[BenchLatency]

// TurnLoadOf is a TurnLoad whose distributions are of another type, as in TCPReportOf.
type TurnLoadOf[Latency any] struct {
	Rate         float64                 `json:"rate"`               // datagrams per second that were requested
	Elapsed      time.Duration           `json:"elapsed_ns"`         // of sending
	Halved       bool                    `json:"halved"`             // the latency of Down is half of the round trip: the far end is an echo server elsewhere
	Up           TurnLoadFlowOf[Latency] `json:"up"`                 // from the clients; empty: it was not requested
	Down         TurnLoadFlowOf[Latency] `json:"down"`               // to the clients; empty: it was not requested
	LastReceived time.Duration           `json:"last_heard_ns"`      // from the start to the arrival of the last datagram
	Overflowed   uint64                  `json:"overflowed"`         // datagrams that found the generator's own sockets full: lost, but not by the server
	Late         uint64                  `json:"late"`               // datagrams of earlier phases that arrived in this one, after they had been counted as lost
	Problems     []string                `json:"problems,omitempty"` // clients that the server would not refresh, and why; absent: none
}

// TurnLoadFlowOf is one direction.
type TurnLoadFlowOf[Latency any] struct {
	Connections []TurnLoadConnection `json:"connections,omitempty"` // absent: the direction was not requested
	Sum         TurnLoadConnection   `json:"sum"`                   // of the connections
	Latency     *Latency             `json:"latency,omitempty"`     // of all the connections; absent: the direction was not requested
	Samples     []BenchSample        `json:"samples,omitempty"`     // datagrams of all the connections, by when they arrived; absent: none did
}

// TurnLoadConnection is one client's share.
type TurnLoadConnection struct {
	ID         int             `json:"id"`             // from 0; of a sum 0
	Client     netip.AddrPort  `json:"client"`         // its address
	Relay      netip.AddrPort  `json:"relay"`          // its relayed address; empty: plain UDP
	Sent       uint64          `json:"sent"`           // datagrams
	Refused    uint64          `json:"refused"`        // datagrams that the kernel did not take; not in Sent
	Received   uint64          `json:"received"`       // datagrams, each once
	Lost       uint64          `json:"lost"`           // Sent less Received
	Reordered  uint64          `json:"reordered"`      // arrived after one that was sent later
	Duplicates uint64          `json:"duplicates"`     // arrived again
	Damaged    uint64          `json:"damaged"`        // wrong size, or the end did not match the header
	Bytes      uint64          `json:"bytes"`          // user data received
	Elapsed    time.Duration   `json:"elapsed_ns"`     // of sending
	Jitter     time.Duration   `json:"jitter_ns"`      // RFC 3550 section 6.4.1; of a sum: the mean
	Latency    TurnLoadMoments `json:"latency"`        // one way
	LongestGap time.Duration   `json:"longest_gap_ns"` // between two arrivals, the begin and the end included
}

// TurnLoadMoments are what iperf prints of a distribution.
type TurnLoadMoments struct {
	Count uint64        `json:"count"`    // values
	Mean  time.Duration `json:"mean_ns"`  // average
	Min   time.Duration `json:"min_ns"`   // minimum
	Max   time.Duration `json:"max_ns"`   // maximum
	Stdev time.Duration `json:"stdev_ns"` // standard deviation
}

// TurnBench is one result of `weir turn bench --json`: that of any benchmark, with its connections.
type TurnBench struct {
	BenchResult
	Connections []TurnBenchConnection `json:"connections,omitempty"` // absent: of several rounds only the sum is kept
	Sum         TurnBenchConnection   `json:"sum"`                   // of the connections
	Search      []TurnBenchTry        `json:"search,omitempty"`      // tries of a search for the highest rate; absent: the rate was given
}

// TurnBenchConnection is one connection, or the sum of them, as iperf's server reports it. Latency is one-way: the clocks at both ends
// are the same one.
type TurnBenchConnection struct {
	ID        int     `json:"id"`               // -1: the sum
	Seconds   float64 `json:"elapsed_s"`        // of the load
	Bytes     float64 `json:"bytes"`            // user data received; iperf gives three digits of it
	Bandwidth float64 `json:"bits_per_s"`       // of that
	Jitter    float64 `json:"jitter_ms"`        // RFC 3550; of a sum: the mean
	Lost      uint64  `json:"lost"`             // datagrams
	Total     uint64  `json:"total"`            // datagrams sent
	Latency   bool    `json:"latency"`          // the next four are known
	Average   float64 `json:"latency_avg_ms"`   // average
	Min       float64 `json:"latency_min_ms"`   // minimum
	Max       float64 `json:"latency_max_ms"`   // maximum
	Stdev     float64 `json:"latency_stdev_ms"` // standard deviation
	Rate      float64 `json:"packets_per_s"`    // received
	Reordered uint64  `json:"reordered"`        // arrived after one that was sent later
}

// TurnBenchTry is one try of a search for the highest rate.
type TurnBenchTry struct {
	Rate float64 `json:"rate"` // packets per second that were requested
	Loss float64 `json:"loss"` // share of what was requested that did not arrive, 0 to 1
	Lost float64 `json:"lost"` // share of what was sent: less than Loss where the generator got too little processor time
	Held bool    `json:"held"` // little enough was lost
}
