package engine

import (
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/arena"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Config is what Open needs. Zero values take the defaults named.
type Config struct {
	Listen  netip.AddrPort // public address; port 0 takes a free one
	Workers int            // default: GOMAXPROCS
	Plain   bool           // serve plain UDP: no DTLS, one Peer per address
	Shared  bool           // sockets of multicast groups may bind the port of Listen too: see udpio.Config.Shared

	// PSK returns the key of an identity. It is called on a worker's goroutine and must not block. A handshake with an
	// unknown identity continues with a random key, so that the answer does not reveal whether the identity exists (RFC 4279
	// section 2).
	// It may be nil if there are Credentials.
	PSK func(identity []byte) (key []byte, ok bool)
	// Credentials are the certificates and the trusted authorities. Store replaces them while the engine runs; sessions go on. nil: PSK
	// only.
	Credentials *atomic.Pointer[handshake.Credentials]
	ClientAuth  handshake.ClientAuth // whether certificates are requested from clients; default none
	Suites      []record.Suite       // in order of preference; default record.Suites. Those without credentials are passed over
	Groups      []handshake.Group    // of the ephemeral key exchange, in order of preference; default handshake.DefaultGroups
	MTU         int                  // of the datagrams of a handshake's flights, in bytes of UDP payload; default handshake.DefaultMTU
	// Resumption lets clients resume sessions on every engine that shares its ticket secrets; nil: every handshake is a full one.
	Resumption *handshake.Resumption
	// CIDs says what connection ids look like; nil: they are not negotiated.
	CIDs *CIDs
	// RequireExtendedMaster refuses clients without RFC 7627.
	RequireExtendedMaster bool

	MaxSessions   int           // per worker; default 65536
	MaxHalfOpen   int           // per worker, handshakes under way; default 8192
	HandshakeLife time.Duration // how long a handshake may take; default 30 s
	StaleAfter    time.Duration // a full table may evict a session silent for this long for another of the same priority; default 30 min
	SessionIdle   time.Duration // a session silent for this long is closed; default never
	// Arena keeps the sessions, so that they outlive the process; nil: they end with it. The engine restores those that it holds, on
	// the workers of now. The caller closes it after Run.
	Arena *arena.Arena
	// OpenArena returns the Arena, nil: none, once the sockets are open: what comes while it reads the sessions waits in them. nil: Arena is set.
	OpenArena func() *arena.Arena
	// Sockets are descriptors of the public sockets of an earlier process, in the order of its workers, and LinkSockets those of its link;
	// nil: new ones. They belong to the engine, also after an error.
	Sockets, LinkSockets []int

	// InFlight is memory of InFlightBytes that outlives the process, in which datagrams are that were read and not handled yet, or sealed and not
	// sent yet: the next process goes on with them. It belongs to the engine until Run ends. nil: they end with the process.
	InFlight []byte

	Amplification int // bytes out for each byte in while an address is not proven; default 3
	// Trusted says which sources of plain datagrams need no proof; default: loopback.
	Trusted func(netip.Addr) bool
	Batch   int // datagrams per system call; default 64

	NewHandler func(*Worker) Handler // one Handler per worker; required

	// Cluster, if not nil, receives the datagrams that belong to other nodes. Link is the address of the socket over which
	// nodes talk to each other.
	Cluster Cluster
	Link    netip.AddrPort
	// LinkHeader is how many bytes stand before the datagram in a frame that forwards one of an IPv4 client: default 8, in Californium
	// clusters 16 with a MAC.
	LinkHeader int

	Log *slog.Logger
}

const defaultBatch = 64

// Handler serves the requests of one worker's peers. It never blocks.
type Handler interface {
	// Serve handles one request datagram (decrypted). It appends its answer to
	// out, whose length is 0 and whose capacity is MaxPayload, and returns it;
	// an empty slice sends nothing. in and out are valid during the call only;
	// in may be written to.
	Serve(p *Peer, in, out []byte, now time.Duration) []byte
	// Tick runs timers that are due and returns the time of the next one, or
	// Never. It is called when that time has come; WakeAt requests an earlier call.
	Tick(now time.Duration) (next time.Duration)
	// Closed reports that p will not be served again. The Handler must not keep p.
	Closed(p *Peer, now time.Duration)
}

// Resting lets a Handler free what an idle peer does not need: it is called once a peer has been silent for RestAfter. A Handler
// that has this method is asked; of others the engine frees its own part alone.
type Resting interface {
	// Rest may set p.State to nil: the next message of p then finds it so.
	Rest(p *Peer, now time.Duration)
}

// RestAfter is how long a peer is silent before it rests. It is longer than message ids must be remembered, EXCHANGE_LIFETIME of
// RFC 7252 section 4.8.2, 247 s.
const RestAfter = 250 * time.Second

// Cluster carries datagrams between nodes. Slices are valid during the call only.
type Cluster interface {
	// Foreign takes a datagram whose first record carries a connection id that
	// another node made. To send it on: buf, to := w.LinkBuffer(), then
	// w.LinkSend. It returns false when the owner is not known: the engine then
	// counts the datagram and handles it as its own.
	Foreign(w *Worker, owner uint32, datagram []byte, from netip.AddrPort, now time.Duration) bool
	// Frame takes one datagram of the link socket, and calls w.Inject or w.SendRaw.
	Frame(w *Worker, frame []byte, from netip.AddrPort, now time.Duration)
	// Return writes the header of a reply that travels to client by way of
	// router, so that it ends at buf[:end], end being at least LinkHeadRoom, and
	// the record (or the final flight's two) follows it. record is not to be changed. It returns where the
	// header starts; false sends the record directly instead.
	Return(w *Worker, buf []byte, end int, record []byte, client, router netip.AddrPort) (start int, ok bool)
	// Tick runs timers that are due on this worker and returns the next one, or Never.
	Tick(w *Worker, now time.Duration) (next time.Duration)
}

// Mover is a Cluster whose nodes move sessions. Its methods are called on any worker's goroutine.
type Mover interface {
	// Here reports whether this node may have sessions with connection ids of an owner that is another node.
	Here(owner uint32) bool
	// Hold says that an earlier process has left such a session. It returns false if this node must not have it.
	Hold(owner uint32) bool
	// Missing takes a datagram of a session that this node does not have, and sends it to where the session may be. router: the node
	// that has forwarded it, if one has. final: it must not be forwarded again. It returns false if it does not know where to.
	Missing(w *Worker, owner uint32, datagram []byte, client, router netip.AddrPort, final bool) bool
}

// Moving lets a Handler move what it has of a peer to another node, together with the session.
type Moving interface {
	// Export appends, in at most room bytes, what the Handler of the other node needs. ready: nothing of the peer is under way, so that
	// nothing is lost by the move.
	Export(p *Peer, b []byte, room int, now time.Duration) (out []byte, ready bool)
	// Import takes it. p is new here.
	Import(p *Peer, b []byte, now time.Duration)
}

// Sizes in bytes.
const (
	MaxPayload   = 16384 // of an application record or a plain datagram to send; typical ones are far smaller
	MaxMoved     = 880   // of a session that moves to another engine
	LinkHeadRoom = 64    // in front of a record that is returned by way of a router
)

// Never is a time that is never reached.
const Never = time.Duration(1<<63 - 1)
