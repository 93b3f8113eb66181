package client

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Sockets says how clients are spread over UDP sockets.
type Sockets string

// Ways of spreading clients over sockets.
const (
	SocketsEach   Sockets = "each"   // a socket, so a source port, per client
	SocketsShared Sockets = "shared" // a few sockets per worker, clients distinguished by connection id
)

// BenchConfig describes one load. The zero value of a field means its default.
type BenchConfig struct {
	URI         string        // coap://host:port/path?query or coaps://...
	Clients     int           // default 5
	Requests    int           // per client; 0 means 100, or no limit when Duration is set
	Duration    time.Duration // stops the load after this time, counted from the first request of the first client
	NoStop      bool          // after an error wait a second and go on with a new handshake, instead of ending that client
	NON         bool          // non-confirmable requests
	Payload     []byte        // request payload; default 40 bytes of text
	Serials     bool          // the payload begins with number and serial number of the client, 4 bytes each, and so must the answer; others count as wrong
	Sockets     Sockets       // default SocketsEach
	Workers     int           // default: number of cores
	Identity    string        // PSK identity for all clients; empty: "cali." and 16 hex digits, different per client
	Secret      []byte        // PSK; default ".fornium"
	CIDLength   int           // length of the connection id the clients choose for themselves, 0 (default) to 8; SocketsShared needs 4
	NoCID       bool          // offer no connection ids: such a session belongs to the client's address
	RebindEvery time.Duration // every client changes its source port at this interval, between two requests of its own; 0 never
	From        []netip.Addr  // local addresses; a client begins with one and takes the next with each rebind. Empty: the kernel chooses
	RebindShare float64       // share of the clients that rebind each time, default 1
	Pause       time.Duration // think time between response and next request, default none
	Spread      time.Duration // within which the clients send their first requests, evenly; default Pause, at most 1 s
	AckTimeout  time.Duration // RFC 7252 ACK_TIMEOUT, default 2 s
	LiveEvery   time.Duration // between two snapshots, default 1 s, at least 20 ms
	Burst       int           // handshakes in flight at a time per worker, default 64; over TCP and TLS 32 of all workers
	Mode        Mode          // what each client does; default ModeRequest
	BlockSize   int           // payload and response go in blocks of this size, in bytes (RFC 7959); 0: a message each, and of a response in blocks the first one
	NotifyEvery time.Duration // between two notifications in ModeReverseObserve, the first included; 0: when the one before was acknowledged
	// HandshakeEvery ends a client's session after so many requests, and makes another one; 0: never. With Resume it is resumed.
	HandshakeEvery int
	Resume         bool
	Credentials    *handshake.Credentials // certificates and raw public keys; with them, pre-shared keys only if Identity is given
	ServerName     string                 // as in Security
	Suites         []record.Suite         // as in Security
	Seed           uint64                 // of message ids, tokens and back-off; 0 draws one
	ServerPID      int                    // process of the server on this machine, whose processor time is measured, that of its children included; 0: none
}

// Snapshot is what the live callback gets every BenchConfig.LiveEvery.
type Snapshot struct {
	Elapsed  time.Duration // since the first request of the first client
	Total    BenchStats    // since the start
	Interval BenchStats    // since the previous snapshot
	Period   time.Duration // since the previous snapshot
	P50, P99 time.Duration // round-trip times of the interval; 0 without an answer
	Max      time.Duration // likewise
	Delays   Delays
}

// Delays are the longest times in which something did not happen.
type Delays struct {
	Waiting time.Duration // of a client for a response that has not come, since its request was to be sent
	Silence time.Duration // between two responses to the clients of a worker
	Late    time.Duration // that a worker was behind its timers: it had no processor, or too much to do
}

func (d *Delays) extend(o Delays) {
	d.Waiting, d.Silence, d.Late = max(d.Waiting, o.Waiting), max(d.Silence, o.Silence), max(d.Late, o.Late)
}

// BenchStats and Group are public types: what `weir coap bench --json` prints.
type (
	BenchStats = v1.CoAPBenchStats
	Group      = v1.CoAPBenchGroup
)

// BenchResult is the end of a load.
type BenchResult struct {
	Stats     BenchStats
	Setup     time.Duration    // creation of clients and all handshakes
	Elapsed   time.Duration    // request phase
	RTT       *measure.Latency // of answered requests, from when the first transmission was intended to the answer
	Samples   []measure.Sample // the same of each second or longer interval, with its errors
	Handshake *measure.Latency
	Groups    []Group       // how evenly the clients were served
	CPU       time.Duration // user and system time of this process in the request phase
	ServerCPU time.Duration // the same of BenchConfig.ServerPID
}
