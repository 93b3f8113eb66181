package replica

import (
	"fmt"
	"time"
)

// Times.
const (
	TickEvery = 100 * time.Millisecond
	// Hold is how long a buddy that has received a batch leaves the sender's sessions alone.
	Hold = 4 * time.Second
	// margin is what the owner ends earlier, for clocks of another rate and the time between its look at the clock and the seal.
	margin = time.Second
	// switchAfter is how long a buddy may leave batches without an Ack before the owner replaces it. Less than Hold less margin, so that an
	// owner that reaches the engine does not have to stop.
	switchAfter    = 1500 * time.Millisecond
	heartbeatEvery = 400 * time.Millisecond
	repeatEvery    = 400 * time.Millisecond // a session without an Ack, and a change for the engine without an answer
	avoidFor       = 10 * time.Second       // a buddy that was replaced
	retryAfter     = 5 * time.Second        // a session that the buddy had no room for
)

// Bounds.
const (
	// MaxSequence is one more than the highest sequence number of an epoch (RFC 6347 section 4.1).
	MaxSequence = 1 << 48
	// Lease is how many sequence numbers of a session are acquired at a time. One that ends early leaves as many unused.
	Lease      = 1 << 16
	window     = 256 // sessions sent without an Ack
	maxStreams = 512
	sentRing   = 256 // batches whose times are remembered
)

// Process is a running process of a node. The zero value is none.
type Process struct {
	Node uint8
	Boot uint64 // random, not 0
}

// Entry is what the agreement engine holds for a process. Its key is Owner.
type Entry struct {
	Owner Process
	// Term is the revision of the store at which the entry was changed: higher than that of every earlier change of any entry.
	Term  uint64
	Buddy Process // has copies of Owner's sessions and may take over; zero: none may
	Taken bool    // by By, for good. An entry that has existed and does no more is given as taken by no process, with the store's revision as its term.
	By    Process
}

// Change is a request to the engine: if the entry of Owner has the term Term (0: does not exist), it becomes {Buddy} or {Taken, By}. The
// caller gives the entry as it is then, changed or not, to Node.Agreed. A request is repeated until an answer comes.
type Change struct {
	Owner Process
	Term  uint64
	Buddy Process
	Taken bool
	By    Process
}

// Config is what New needs.
type Config struct {
	Self Process
	// Boot is that by which other processes name this one as their buddy; 0: that of Self. Another one in a process that goes on as the one before it
	// (Resume): the copies that that one had are gone.
	Boot     uint64
	Sessions int    // bound of the own sessions
	Copies   int    // bound of the copies of other nodes' sessions
	Lease    uint64 // 0: the constant Lease
	// Slot returns the bytes of a session as they are now: what never changes, and the rest. Methods of the Node call it.
	Slot func(number uint64) (static, changing []byte)
}

// Peer is another node, as the membership knows it.
type Peer struct {
	Process
	Up bool // it answers, over a secured link, and takes copies
}

// Send is a message for a node. It has keys: overwrite it when it is sent.
type Send struct {
	To    uint8
	Bytes []byte
}

// Limit is the limit of a session: its worker may seal sequence numbers below it, while the time is before SealUntil.
type Limit struct {
	Number, Limit uint64
}

// Restored is a session that goes on in this process. Of a copy that was behind: records between its replay window and what the owner had
// received may be repeated by an attacker, so the session needs a proof of freshness for unsafe methods (NeedsFreshness, RFC 9175).
type Restored struct {
	Number   uint64
	From     Process
	Start    uint64 // next sequence number
	Limit    uint64
	Static   []byte
	Changing []byte
}

// Output is what a call requests of its caller.
type Output struct {
	Send     []Send
	Changes  []Change
	Limits   []Limit
	Restored []Restored
	Removed  []uint64 // no copy of these can be restored: they may leave for another node
	Dropped  []uint64 // these must not seal again, nor leave: wipe their keys
	Events   []Event
}

// Event is for the log and the counters.
type Event struct {
	Kind     EventKind
	Node     uint8 // the other node
	Sessions int
}

// EventKind is what has happened.
type EventKind uint8

// Kinds of events.
const (
	Replicates EventKind = iota // the node is the buddy now
	Alone                       // no node has copies any more
	Fenced                      // the sessions were taken over by the node: all are dropped here; the process goes on with another Boot
	TookOver                    // the sessions of the node
	Discarded                   // copies of the node's sessions: another process has them, or they are of an earlier term
	NoRoom                      // sessions of the node, taken over, that there is no room for: dropped
	Resumed                     // sessions that the process before this one has left: no other node can have them
	numOfKinds
)

// Node is the state of one process. Not safe for concurrent use.
type Node struct {
	cfg   Config
	now   time.Duration
	peers []Peer
	line  line // the own entry

	sessions map[uint64]*session
	last     uint64 // number of the newest session
	urgent   queue  // to send: leases, removals, new sessions
	later    queue  // to send when there is time
	flying   map[uint64]*session
	refused  queue // to be offered again
	retryAt  time.Duration

	streams map[Process]*stream
	floors  [256]uint64 // by node: new streams have a higher term, because those of this one and below have ended
	copies  int
}

// New makes the state of a process without sessions.
func New(cfg Config) *Node {
	if cfg.Lease == 0 {
		cfg.Lease = Lease
	}
	if cfg.Boot == 0 {
		cfg.Boot = cfg.Self.Boot
	}
	return &Node{cfg: cfg, sessions: map[uint64]*session{}, flying: map[uint64]*session{}, streams: map[Process]*stream{}}
}

// Tick runs what is due. Call it every TickEvery, with all other nodes. now is monotonic, and goes on while the machine is suspended.
func (n *Node) Tick(now time.Duration, peers []Peer) (o Output) {
	n.now, n.peers = max(n.now, now), peers
	n.claim(&o)
	n.propose(&o)
	n.repeat()
	n.transmit(&o)
	return o
}

// Receive handles a message of a node. ok: it was one.
func (n *Node) Receive(from uint8, message []byte, now time.Duration) (o Output, ok bool) {
	n.now = max(n.now, now)
	if m, ok := parseAck(message); ok {
		n.acknowledged(from, &m, &o)
		n.transmit(&o)
		return o, true
	}
	m, ok := parseBatch(message)
	if ok {
		n.store(from, &m, &o)
	}
	return o, ok
}

// Agreed takes what the engine holds, from an answer to a Change or because it has changed, in any order and any number of times. The
// caller gives every entry that it reads: the entries of other processes end their streams.
func (n *Node) Agreed(e Entry, now time.Duration) (o Output) {
	n.now = max(n.now, now)
	if e.Owner == n.cfg.Self {
		n.own(e, &o)
	} else {
		n.entry(e, &o)
	}
	return o
}

// here is this process as the buddy of others.
func (n *Node) here() Process { return Process{n.cfg.Self.Node, n.cfg.Boot} }

// String is for logs.
func (p Process) String() string { return fmt.Sprintf("%d/%x", p.Node, p.Boot) }
