package client

import (
	"net/netip"
	"time"

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
	AckTimeout  time.Duration // RFC 7252 ACK_TIMEOUT, default 2 s
	LiveEvery   time.Duration // between two snapshots, default 1 s, at least 20 ms
	Burst       int           // handshakes in flight at a time per worker, default 64
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
}

// BenchStats counts since the start. Every field but the gauges only grows.
type BenchStats struct {
	Requests        uint64 `json:"requests"`         // answered with success (2.xx)
	Failed          uint64 `json:"failed"`           // answered with an error (4.xx, 5.xx) or RST
	Lost            uint64 `json:"lost"`             // requests without an answer after all retransmissions
	Retransmissions uint64 `json:"retransmissions"`  // of requests
	Errors          uint64 `json:"errors"`           // transmission errors: requests lost, failed, and failed handshakes
	Handshakes      uint64 `json:"handshakes"`       // completed
	Rehandshakes    uint64 `json:"rehandshakes"`     // completed or begun by a client that had had a session
	HandshakeErrors uint64 `json:"handshake_errors"` // timed out or refused
	LostSessions    uint64 `json:"lost_sessions"`    // sessions given up: fatal alert or a lost request
	Rebinds         uint64 `json:"rebinds"`          // changes of a client's source port
	Moves           uint64 `json:"moves"`            // of those, to another source address (BenchConfig.From)
	PathChallenges  uint64 `json:"path_challenges"`  // of the server, answered, after a change of address (RFC 9853)
	FirstBlocks     uint64 `json:"first_blocks"`     // answers of which only the first block was taken (RFC 7959)
	Refused         uint64 `json:"refused"`          // datagrams the kernel or the server's host refused (nothing listens, no buffer)
	Stray           uint64 `json:"stray"`            // datagrams and records that belong to nothing (late duplicates, forgeries)
	Notifications   uint64 `json:"notifications"`    // received, in mode observe
	Served          uint64 `json:"served"`           // requests of the server answered, or notifications sent to it, in the reverse modes
	Blocks          uint64 `json:"blocks"`           // messages behind the first one of a transfer in blocks
	Resumed         uint64 `json:"resumed"`          // of the handshakes, those that resumed a session
	Clients         int    `json:"clients"`          // gauge: clients with a session (or started, without DTLS)
}

// Snapshot is what the live callback gets every BenchConfig.LiveEvery.
type Snapshot struct {
	Elapsed  time.Duration // since the first request of the first client
	Total    BenchStats    // since the start
	Interval BenchStats    // since the previous snapshot
	Period   time.Duration // since the previous snapshot
	P50, P99 time.Duration // round-trip times of the interval; 0 without an answer
}

// BenchResult is the end of a load.
type BenchResult struct {
	Stats     BenchStats       `json:"stats"`
	Setup     time.Duration    `json:"-"`   // creation of clients and all handshakes
	Elapsed   time.Duration    `json:"-"`   // request phase
	RTT       *measure.Latency `json:"rtt"` // of answered requests, first transmission to answer
	Handshake *measure.Latency `json:"handshake"`
	Groups    []Group          `json:"groups"` // how evenly the clients were served
	CPU       time.Duration    `json:"-"`      // user and system time of this process in the request phase
}

// Group is a set of clients that had about the same number of answered requests.
type Group struct {
	Clients int    `json:"clients"`
	From    uint64 `json:"from"`
	To      uint64 `json:"to"`
}
