package v1

import (
	"net/netip"
	"time"
)

// CoAPStatus is the answer of GET /status of `weir coap server`.
type CoAPStatus struct {
	Version     string          `json:"version"`     // of the binary
	PID         int             `json:"pid"`         // of the serving process
	Handover    CoAPHandover    `json:"keep"`        // sockets and sessions that outlive it
	Credentials CoAPCredentials `json:"credentials"` // pre-shared keys in use
	Reverse     CoAPReverse     `json:"reverse"`     // requests and observations of the server at clients
	Listeners   []CoAPListener  `json:"listeners"`   // plain, DTLS, TCP, TLS, then cluster nodes, each in the configured order
}

// CoAPHandover is what is stored beyond the life of a process, and what could not be stored.
type CoAPHandover struct {
	Supervisor string `json:"supervisor"`      // yes, systemd, gone or none
	PID        int    `json:"pid,omitempty"`   // of the supervisor; absent: none
	Starts     int    `json:"starts"`          // starts of a serving process, by this supervisor and its predecessors
	Upgrades   int    `json:"upgrades"`        // of the binary
	Last       string `json:"last,omitempty"`  // why the previous process ended; absent: there was none
	Stored     int    `json:"stored"`          // sockets, and arenas of sessions, that are stored now
	Capacity   int    `json:"capacity"`        // bound on them
	Refused    uint64 `json:"refused"`         // that could not be stored: they end with the process
	Waiting    int    `json:"waiting"`         // that the supervisor, or systemd, has not accepted yet; they are sent again
	State      string `json:"state,omitempty"` // directory with the sessions; absent: none was requested
	// Unusable is why that directory cannot be written. Absent: it can, or none was requested.
	Unusable string `json:"state_unusable,omitempty"`
}

// CoAPUpgraded is the output of `weir coap upgrade --json`.
type CoAPUpgraded struct {
	From     string  `json:"from"`     // version
	To       string  `json:"to"`       // version
	PID      int     `json:"pid"`      // of the new serving process
	Seconds  float64 `json:"seconds"`  // from the request until the new process answered
	Sessions uint64  `json:"sessions"` // of DTLS, that it took over
	Lost     uint64  `json:"lost"`     // of DTLS, that it did not take over
	Upgrades int     `json:"upgrades"` // of this server so far
}

// CoAPUpgradeAnswer is the answer of POST /upgrade: the process will be replaced.
type CoAPUpgradeAnswer struct {
	PID int `json:"pid"` // of the process that goes
}

// CoAPKept says what the DTLS sessions of a listener need to outlive the process, and what became of those of the process before.
type CoAPKept struct {
	SlotBytes int `json:"slot_bytes"` // of one session
	Damaged   int `json:"damaged"`    // sessions that were dropped, because their slot was damaged
	NoRoom    int `json:"no_room"`    // sessions that were dropped, because fewer are allowed now
}

// CoAPCredentials are the pre-shared keys in use.
type CoAPCredentials struct {
	Generation uint64 `json:"generation"`      // 1 at the start, plus 1 for every successful reload
	Identities int    `json:"identities"`      // in the PSK file
	Demo       bool   `json:"demo"`            // the public sandbox identities are accepted
	Error      string `json:"error,omitempty"` // why the last reload failed; absent: it did not
}

// CoAPReverse counts what /reverse-request and /reverse-observe were asked for, on all listeners.
type CoAPReverse struct {
	RequestsAsked         uint64 `json:"requests_asked"`         // requests to clients
	RequestsSent          uint64 `json:"requests_sent"`          // of these
	RequestsPending       int    `json:"requests_pending"`       // of these, now
	RequestsFailed        uint64 `json:"requests_failed"`        // runs that ended because a request was not answered or not sent
	RequestsRefused       uint64 `json:"requests_refused"`       // POSTs answered with 5.03
	Observations          int    `json:"observations"`           // resources of clients that are observed now
	Registrations         uint64 `json:"registrations"`          // sent to clients
	RegistrationsFailed   uint64 `json:"registrations_failed"`   // refused, or not answered
	ObservationsRefused   uint64 `json:"observations_refused"`   // POSTs answered with 5.03
	NotificationsReceived uint64 `json:"notifications_received"` // of clients
}

// CoAPListener is one listener.
type CoAPListener struct {
	URI        string         `json:"uri"`                 // such as coap://127.0.0.1:5683
	Addr       netip.AddrPort `json:"address"`             // that clients send to
	Secure     bool           `json:"secure"`              // over DTLS or TLS
	NodeID     *uint32        `json:"node_id,omitempty"`   // of a cluster node; absent: it is none
	Management netip.AddrPort `json:"management,omitzero"` // internal address of a cluster node; absent: it is none
	Engine     DTLSCounters   `json:"engine"`              // datagrams, records and sessions; zero over TCP and TLS
	Exchange   CoAPCounters   `json:"exchange"`            // messages
	Resources  CoAPResources  `json:"resources"`           // bodies in blocks, observers
	OSCORE     CoAPOSCORE     `json:"oscore"`              // protected requests
	Pending    int            `json:"pending"`             // messages that await an acknowledgement or their time
	Streams    *CoAPStreams   `json:"streams,omitempty"`   // connections over TCP or TLS; absent: the listener has datagrams
	Cluster    *CoAPCluster   `json:"cluster,omitempty"`   // what went to and came from other nodes; absent: it is no cluster node
	Kept       *CoAPKept      `json:"kept,omitempty"`      // sessions beyond the process; absent: they end with it, or there are none
	Moves      *CoAPMoves     `json:"moves,omitempty"`     // how sessions move between nodes; absent: they do not, because the link is not secured
	// Copies is how sessions are copied to another node; absent: they are not.
	Copies *CoAPReplication `json:"replication,omitempty"`
	Nodes  []CoAPNode       `json:"nodes,omitempty"` // nodes of the cluster, the one that answers first; absent: it is no cluster node
}

// DTLSCounters count since the start, except Sessions, HalfOpen and UnprovenPeers, which are current.
type DTLSCounters struct {
	Sessions uint64 `json:"sessions"`  // of DTLS, and peers of plain CoAP
	HalfOpen uint64 `json:"half_open"` // handshakes under way

	Kept        uint64 `json:"sessions_kept"`         // sessions that outlive the process, now
	NotKept     uint64 `json:"sessions_not_kept"`     // sessions that end with the process: no slot, or a long identity
	Restored    uint64 `json:"sessions_restored"`     // sessions taken over from the process before
	RestoreLost uint64 `json:"sessions_restore_lost"` // sessions of the process before that do not fit this one
	LeftHandled uint64 `json:"left_handled"`          // datagrams that the process before had read and not handled
	LeftSent    uint64 `json:"left_sent"`             // datagrams that the process before had sealed and perhaps not sent

	MovedOut uint64 `json:"sessions_moved_out"` // sessions that left for another node of the cluster
	MovedIn  uint64 `json:"sessions_moved_in"`  // sessions that came from another node of the cluster

	NotCopied  uint64 `json:"sessions_not_copied"` // sessions that no other node has copies of, for want of room
	TakenOver  uint64 `json:"sessions_taken_over"` // sessions of nodes that have failed, which go on here
	Fenced     uint64 `json:"sessions_fenced"`     // sessions dropped, because another node has taken them over
	Silenced   uint64 `json:"silenced"`            // records not opened or not sealed, because another node may have the session
	LeaseSpent uint64 `json:"lease_spent"`         // records not sealed, because the node with the copies had not acknowledged further sequence numbers

	Rounds     uint64 `json:"rounds"`         // of the workers; datagrams per round show how large batches are
	Datagrams  uint64 `json:"datagrams"`      // received
	RecordsIn  uint64 `json:"records_in"`     // received
	RecordsOut uint64 `json:"records_out"`    // sent
	Requests   uint64 `json:"requests"`       // messages given to CoAP
	BytesIn    uint64 `json:"received_bytes"` // payload of UDP
	BytesOut   uint64 `json:"sent_bytes"`     // payload of UDP

	HelloVerifies    uint64 `json:"hello_verifies"`     // ClientHellos answered without keeping anything
	HellosIgnored    uint64 `json:"hellos_ignored"`     // ClientHellos that are not well formed, or in fragments
	Signatures       uint64 `json:"signatures"`         // made with the server's certificate or raw public key
	Handshakes       uint64 `json:"handshakes"`         // completed
	Resumed          uint64 `json:"handshakes_resumed"` // of those, the ones that resumed a session
	HandshakesFailed uint64 `json:"handshakes_failed"`  // refused, given up, wrong key, no room for the session
	HalfOpenEvicted  uint64 `json:"half_open_evicted"`  // handshakes under way that made room for newer ones
	Replaced         uint64 `json:"replaced"`           // sessions whose address made a new one
	Renegotiations   uint64 `json:"renegotiations"`     // requested by clients, all refused

	BadMACs            uint64 `json:"bad_macs"`             // records that failed to open, of sessions and of handshakes
	ForgedDropped      uint64 `json:"forged_dropped"`       // records not tried, because too many from their source had failed to open
	ForgersEvicted     uint64 `json:"forgers_evicted"`      // sources of such records that made room for others
	Spent              uint64 `json:"sessions_spent"`       // sessions ended because too many records had failed to open
	Replays            uint64 `json:"replays"`              // records received again
	Malformed          uint64 `json:"malformed"`            // records that are not well formed
	UnknownCIDs        uint64 `json:"unknown_cids"`         // records whose connection id belongs to no session
	UnknownAddress     uint64 `json:"unknown_address"`      // records whose address belongs to no session
	SessionsFull       uint64 `json:"sessions_full"`        // new peers turned away
	Evicted            uint64 `json:"evicted"`              // sessions, and plain peers whose proof had expired, that made room
	EvictedSuperseded  uint64 `json:"evicted_superseded"`   // of these, sessions whose address has a newer one
	EvictedOverShare   uint64 `json:"evicted_over_share"`   // of these, sessions of the identity that held most
	EvictedOwnIdentity uint64 `json:"evicted_own_identity"` // of these, sessions of the identity that made the new one
	EvictedStale       uint64 `json:"evicted_stale"`        // of these, sessions that were silent for long
	Expired            uint64 `json:"sessions_expired"`     // sessions that were silent beyond their lifetime
	Drained            uint64 `json:"sessions_drained"`     // sessions closed by the drain before the server's end
	Closed             uint64 `json:"closed"`               // peers that ended, for whatever reason
	Alerts             uint64 `json:"alerts"`               // received, authentic
	AddressChanges     uint64 `json:"address_changes"`      // of sessions
	AddressesProven    uint64 `json:"addresses_proven"`     // addresses that proved themselves after a change, or plain peers'
	PathChallenges     uint64 `json:"path_challenges"`      // sent to new addresses of sessions (RFC 9853)
	UnprovenPeers      uint64 `json:"unproven_peers"`       // plain peers that may be evicted, now
	UnprovenEvicted    uint64 `json:"unproven_evicted"`     // unproven plain peers that made room
	Amplified          uint64 `json:"amplified"`            // datagrams not sent, because they exceed the budget of an unproven address
	EarlyHeld          uint64 `json:"early_held"`           // requests that came before the Finished and were kept
	SendErrors         uint64 `json:"send_errors"`          // datagrams that the kernel refused

	Foreign         uint64 `json:"foreign"`          // datagrams given to the cluster
	ForeignUnknown  uint64 `json:"foreign_unknown"`  // datagrams whose owner the cluster did not know
	Injected        uint64 `json:"injected"`         // datagrams that came by way of another node
	Returned        uint64 `json:"returned"`         // records sent by way of another node
	LinkSegmented   uint64 `json:"link_segmented"`   // sends to other nodes that carried more than one datagram
	LinkUnsegmented uint64 `json:"link_unsegmented"` // such sends that the kernel refused; each datagram left by itself
	HandedOver      uint64 `json:"handed_over"`      // datagrams given to another worker
	QueueFull       uint64 `json:"queue_full"`       // datagrams that another worker had no room for
	Truncated       uint64 `json:"truncated"`        // datagrams longer than a receive buffer
	KernelDrops     uint64 `json:"kernel_drops"`     // datagrams that the sockets' queues had no room for
}

// CoAPCounters count messages since the start.
type CoAPCounters struct {
	Requests         uint64 `json:"requests"`          // executed, repeated safe requests included
	Responses        uint64 `json:"responses"`         // matched to a request of this node
	Malformed        uint64 `json:"malformed"`         // datagrams that are no well-formed message
	BadOptions       uint64 `json:"bad_options"`       // messages rejected for a critical option
	Duplicates       uint64 `json:"duplicates"`        // recognised by their message id
	Forgotten        uint64 `json:"forgotten"`         // duplicates of an unsafe request whose answer was no longer stored: not executed, not answered
	Overwritten      uint64 `json:"overwritten"`       // message ids forgotten before their lifetime ended, because the table was full
	TooLarge         uint64 `json:"too_large"`         // answers not stored, or replies not sent, because they exceed a bound
	Pings            uint64 `json:"pings"`             // answered with Rst
	Separate         uint64 `json:"separate"`          // separate responses
	Probes           uint64 `json:"probes"`            // pings that require a peer to prove its address
	Sent             uint64 `json:"sent"`              // first transmissions of messages that are retransmitted
	Retransmissions  uint64 `json:"retransmissions"`   // of those
	Acks             uint64 `json:"acks"`              // acknowledgements that matched
	Resets           uint64 `json:"resets"`            // resets that matched
	Timeouts         uint64 `json:"timeouts"`          // pending messages given up
	Stray            uint64 `json:"stray"`             // acknowledgements, resets and responses that match nothing
	PendingFull      uint64 `json:"pending_full"`      // messages refused because too many are pending, in all or of one session
	Multicast        uint64 `json:"multicast"`         // messages to multicast groups
	MulticastAnswers uint64 `json:"multicast_answers"` // answers to them, sent within the leisure
	MulticastIgnored uint64 `json:"multicast_ignored"` // without an answer: confirmable, not for discovery, or with an error or nothing as the result
	MulticastRefused uint64 `json:"multicast_refused"` // without an answer, because too many answers were waiting
}

// CoAPResources count since the start, except Observers, Bodies and BodyBytes, which are current.
type CoAPResources struct {
	Observers        int    `json:"observers"`         // observations that are registered
	Bodies           int    `json:"bodies"`            // request bodies in blocks under way, and answers stored for their next block
	BodyBytes        int    `json:"body_bytes"`        // of these bodies
	Incomplete       uint64 `json:"incomplete"`        // blocks without the blocks before them: 4.08
	BodiesTooLarge   uint64 `json:"bodies_too_large"`  // beyond the bound: 4.13
	BodiesRefused    uint64 `json:"bodies_refused"`    // no room: 5.03
	BodiesEvicted    uint64 `json:"bodies_evicted"`    // made room for other ones
	BodiesExpired    uint64 `json:"bodies_expired"`    // no further block came
	Notifications    uint64 `json:"notifications"`     // sent to observers, repetitions not counted
	ObserversRefused uint64 `json:"observers_refused"` // answered without Observe, because there was no room
	ObserversEvicted uint64 `json:"observers_evicted"` // of addresses without proof, made room for other ones
	ObserversLost    uint64 `json:"observers_lost"`    // the client did not acknowledge a notification, or rejected it
}

// CoAPOSCORE count requests with the OSCORE option since the start (RFC 8613).
type CoAPOSCORE struct {
	Requests   uint64 `json:"requests"`   // verified and executed
	Malformed  uint64 `json:"malformed"`  // the option cannot be read: 4.02
	Unknown    uint64 `json:"unknown"`    // no context for the kid: 4.01
	Replays    uint64 `json:"replays"`    // sequence numbers seen before or too old: 4.01
	Forged     uint64 `json:"forged"`     // not verified: 4.00
	Challenges uint64 `json:"challenges"` // answered with an Echo option after a restart
	Renewals   uint64 `json:"renewals"`   // requests that began to agree on a new context
	Unsent     uint64 `json:"unsent"`     // responses that could not be protected
}

// CoAPStreams count since the start, except Connections, Guests and Handshakes, which are current.
type CoAPStreams struct {
	Connections int    `json:"connections"`       // open, TLS handshakes not counted
	Guests      int    `json:"guests"`            // of those, the ones that have not sent a request
	Handshakes  int    `json:"handshakes"`        // of TLS, under way
	Accepted    uint64 `json:"accepted"`          // connections
	Refused     uint64 `json:"refused"`           // closed at once, because a bound was reached
	Evicted     uint64 `json:"evicted"`           // connections without a request that made room for other ones
	Failed      uint64 `json:"handshakes_failed"` // of TLS, failed or too slow
	TimedOut    uint64 `json:"timed_out"`         // idle, or a message or the first request took too long
	Slow        uint64 `json:"slow"`              // closed because the peer did not take what was sent to it
	Aborted     uint64 `json:"aborted"`           // by the server, because the peer broke the protocol
	Overloaded  uint64 `json:"overloaded"`        // closed because incomplete messages took too much memory
	Messages    uint64 `json:"messages"`          // requests and responses received
	Pings       uint64 `json:"pings"`             // answered
	Received    uint64 `json:"received_bytes"`    // inside TLS
	Sent        uint64 `json:"sent_bytes"`        // inside TLS
}

// CoAPCluster counts what went to and came from other nodes since the start. The first eight are those of Californium's cluster
// health.
type CoAPCluster struct {
	Forwarded          uint64 `json:"forwarded"`           // foreign datagrams sent to their owner
	Backwarded         uint64 `json:"backwarded"`          // replies sent to the node that the request came through
	ProcessedForwarded uint64 `json:"processed_forwarded"` // forwarded datagrams taken as own ones
	SentBackwarded     uint64 `json:"sent_backwarded"`     // replies of other nodes sent to their client
	DroppedForward     uint64 `json:"dropped_forward"`     // foreign datagrams of unknown nodes, malformed frames of forwarded ones
	DroppedBackward    uint64 `json:"dropped_backward"`    // malformed frames of replies
	BadForward         uint64 `json:"bad_forward"`         // frames of forwarded datagrams with a wrong MAC; 0 without MAC
	BadBackward        uint64 `json:"bad_backward"`        // frames of replies with a wrong MAC; 0 without MAC
	ManagementReceived uint64 `json:"management_received"` // pings and pongs
	ManagementSent     uint64 `json:"management_sent"`     // pings and pongs
	MistakenIDs        uint64 `json:"mistaken_ids"`        // pings that announce this node's id, or another one than configured
	RefusedTargets     uint64 `json:"refused_targets"`     // frames for loopback, this host, metadata services, or an address that is no single client
	Strangers          uint64 `json:"strangers"`           // messages on the internal socket from an address that is no node
	Malformed          uint64 `json:"malformed"`           // messages on the internal socket that are neither frame nor ping, or a ping that is not encrypted though the link is secured
	Relayed            uint64 `json:"relayed"`             // datagrams of sessions that have moved, sent one node further
	Waited             uint64 `json:"waited"`              // datagrams that came while their session was on its way to another node
	LinkSessions       uint64 `json:"link_sessions"`       // nodes with a DTLS session of the secured link; not a sum
	LinkHandshakes     uint64 `json:"link_handshakes"`     // DTLS handshakes of the secured link that were completed
	LinkFailed         uint64 `json:"link_failed"`         // those that were refused, or got no answer
	LinkRefused        uint64 `json:"link_refused"`        // DTLS records of the secured link that did not open, or were of no node
}

// CoAPMoves is how sessions move between a node and others. Counters are since the start.
type CoAPMoves struct {
	Draining bool        `json:"draining"`         // the node moves its sessions to other nodes
	Drained  bool        `json:"drained"`          // it has nothing left to move
	To       *uint8      `json:"to,omitempty"`     // node that sessions move to now; absent: none move
	Cause    string      `json:"cause,omitempty"`  // why the newest transfer has failed; absent: it has not
	Sessions int64       `json:"sessions"`         // with connection ids, here
	Transit  int64       `json:"transit"`          // on their way to another node
	Out      uint64      `json:"moved_out"`        // taken by another node
	In       uint64      `json:"moved_in"`         // taken from another node
	Lost     uint64      `json:"moved_lost"`       // dropped, because it is not known whether they arrived, or the other node could not take them
	Refused  uint64      `json:"moved_refused"`    // of another node, that could not go on here
	Owners   []CoAPOwner `json:"owners,omitempty"` // of the node ids whose sessions were ever moved; absent: none were
}

// CoAPReplication is how the sessions of a node are copied to another one, and what became of those of other nodes. Counters are since the start.
type CoAPReplication struct {
	Process     string `json:"process"`               // NODE/NUMBER; another number after its sessions were taken over
	Buddy       *uint8 `json:"buddy,omitempty"`       // node that has copies of the sessions here; absent: none has
	Alone       bool   `json:"alone"`                 // no other node has copies: a crash loses the sessions
	Sessions    int    `json:"sessions"`              // of this node that are copied
	Behind      int    `json:"behind"`                // of these, the ones that the other node has no copy of yet
	Copies      int    `json:"copies"`                // of other nodes' sessions
	TakenOver   uint64 `json:"taken_over"`            // sessions of nodes that have failed
	NotRestored uint64 `json:"not_restored"`          // those that could not go on here
	TakeOvers   uint64 `json:"take_overs"`            // processes of other nodes whose sessions were taken over
	Fenced      uint64 `json:"fenced"`                // times that the sessions of this node were taken over while it was running
	StoreErrors uint64 `json:"store_errors"`          // requests to the store that failed
	StoreError  string `json:"store_error,omitempty"` // why the newest one has; absent: it has not
}

// CoAPOwner is which node has the sessions whose connection ids name another one.
type CoAPOwner struct {
	Shard   uint8  `json:"shard"`   // node id in the connection ids
	Owner   uint8  `json:"owner"`   // node that has the sessions
	Version uint32 `json:"version"` // of several answers the highest one holds
}

// CoAPMoved is the output of `weir coap cluster drain --json` and undrain.
type CoAPMoved struct {
	Moved   uint64  `json:"moved"`   // sessions that other nodes have taken meanwhile
	Lost    uint64  `json:"lost"`    // sessions dropped meanwhile, whose clients have to make new ones
	Left    int64   `json:"left"`    // sessions with connection ids that are here
	Seconds float64 `json:"seconds"` // that it took
}

// CoAPNode is one node of a cluster, as the node that answers sees it.
type CoAPNode struct {
	ID         *uint32 `json:"id,omitempty"` // node id; absent: not known yet
	Management string  `json:"management"`   // internal address
	State      string  `json:"state"`        // self, searched (an address without a node), unknown (no message yet), up or down
	Secured    bool    `json:"secured"`      // there is a DTLS session with it
	Silent     float64 `json:"silent_s"`     // seconds since its newest message; 0: unknown or self
}

// CoAPClusterView is the output of `weir coap cluster show --json`: the cluster as the nodes of one process see it.
type CoAPClusterView struct {
	Nodes []CoAPClusterNode `json:"nodes"` // those that the process runs, one for each listener that is a cluster node
}

// CoAPClusterNode is a node of a cluster, and what it knows of the others.
type CoAPClusterNode struct {
	ID         uint32         `json:"id"`         // node id
	URI        string         `json:"uri"`        // of its listener, such as coaps://127.0.0.1:15784
	Management netip.AddrPort `json:"management"` // internal address
	Sessions   uint64         `json:"sessions"`   // DTLS sessions that it owns
	Members    []CoAPNode     `json:"members"`    // nodes of the cluster, itself first
	Counters   CoAPCluster    `json:"counters"`   // what went to and came from the others
	// Copies is how its sessions are copied to another node; absent: they are not.
	Copies *CoAPReplication `json:"replication,omitempty"`
}

// CoAPExchange is the output of `weir coap get --json` and of the other requests.
type CoAPExchange struct {
	Code            string       `json:"code"`              // of the response, such as 2.05; 0.00: there is none, as the No-Response option requires
	Name            string       `json:"name"`              // of the code, such as CONTENT
	Type            string       `json:"type"`              // CON, NON, ACK or RST
	MID             uint16       `json:"mid"`               // message id
	Token           string       `json:"token"`             // in hexadecimal
	Options         string       `json:"options"`           // for people
	Payload         string       `json:"payload"`           // as text, for people
	PayloadHex      string       `json:"payload_hex"`       // in hexadecimal
	RTT             float64      `json:"rtt_ms"`            // milliseconds from the first transmission to the whole response, without handshake
	Elapsed         float64      `json:"elapsed_ms"`        // milliseconds of the whole exchange, with handshake
	Retransmissions int          `json:"retransmissions"`   // of requests
	Messages        int          `json:"messages"`          // requests sent, without retransmissions: more than one for blocks and for an Echo option
	Session         *CoAPSession `json:"session,omitempty"` // absent: without DTLS
}

// CoAPSession is the DTLS session of an exchange.
type CoAPSession struct {
	Suite        string `json:"suite"`         // cipher suite, IANA name
	Auth         string `json:"auth"`          // psk, x509 or rpk: how server or client has proven who it is
	Identity     string `json:"identity"`      // of the pre-shared key, or the subject or key hash of the server's certificate
	ID           uint32 `json:"id"`            // names the session in what is printed; drawn at random
	ConnectionID bool   `json:"connection_id"` // connection ids were negotiated
	ReadCID      string `json:"read_cid"`      // connection id that the client receives with, in hexadecimal; empty: of length 0, or none
	WriteCID     string `json:"write_cid"`     // the one of the server, likewise
	Resumed      bool   `json:"resumed"`       // of an earlier session
}

// CoAPNotification is a line of the output of `weir coap observe --json`.
type CoAPNotification struct {
	Number        int          `json:"number"`        // of the notifications shown, from 1, which is the answer to the registration
	Time          time.Time    `json:"time"`          // when it came
	Sequence      uint32       `json:"sequence"`      // value of the Observe option
	Registrations int          `json:"registrations"` // so far
	Stale         uint64       `json:"stale"`         // notifications left out so far because a newer one was there
	Exchange      CoAPExchange `json:"exchange"`      // the notification
}

// CoAPPing is the output of `weir coap ping --json`.
type CoAPPing struct {
	URI  string    `json:"uri"`    // of the server
	Sent int       `json:"sent"`   // pings, without retransmissions
	RTT  []float64 `json:"rtt_ms"` // milliseconds of those that were answered, in their order
}

// CoAPLink is one element of the list that `weir coap discover --json` prints.
type CoAPLink struct {
	Target     string   `json:"target"`          // path or URI
	Types      []string `json:"types"`           // rt
	Interfaces []string `json:"interfaces"`      // if
	Formats    []int    `json:"formats"`         // ct: content formats
	Size       uint64   `json:"size,omitempty"`  // sz: bytes; absent: not given
	Title      string   `json:"title,omitempty"` // absent: none
	Observable bool     `json:"observable"`      // obs
	Link       string   `json:"link"`            // as in the document, with every attribute
}

// CoAPServerLinks is one element of the list that `weir coap discover --json` prints for a multicast group: a server that answered.
type CoAPServerLinks struct {
	Source string     `json:"source"`          // address and port
	After  float64    `json:"after_ms"`        // milliseconds from the request to its first answer
	Links  []CoAPLink `json:"links"`           // empty with an error
	Error  string     `json:"error,omitempty"` // why its list is not known; absent: it is
}

// CoAPReceive is the output of `weir coap receive --json`.
type CoAPReceive struct {
	URI            string            `json:"uri"`             // of the resource
	Device         string            `json:"device"`          // names this client at the server
	Totals         CoAPReceiveCounts `json:"totals"`          // since the test began, over all its runs
	Open           int               `json:"open"`            // requests whose fate is not known yet
	ServerRestarts uint64            `json:"server_restarts"` // seen by the client
	AddressChanges uint64            `json:"address_changes"` // of the client, as the server has seen it
	Part           float64           `json:"part_s"`          // seconds of a part of the history
	History        []CoAPReceivePart `json:"history"`         // the oldest first, without parts in which nothing was sent
}

// CoAPReceiveCounts count requests of a receive test.
type CoAPReceiveCounts struct {
	Sent          uint64 `json:"sent"`           // requests
	Answered      uint64 `json:"answered"`       // in time
	LostRequests  uint64 `json:"lost_requests"`  // that the server never got
	LostResponses uint64 `json:"lost_responses"` // to requests that the server got
	Unknown       uint64 `json:"unknown"`        // without a response, and the server's history does not show which was lost
}

// CoAPReceivePart is a part of the history of a receive test.
type CoAPReceivePart struct {
	Start   time.Time         `json:"start"`       // of the part
	Counts  CoAPReceiveCounts `json:"counts"`      // of the requests sent in it
	MeanRTT float64           `json:"mean_rtt_ms"` // milliseconds, of the answered; 0: none
	MaxRTT  float64           `json:"max_rtt_ms"`  // likewise
}

// CoAPBench is what `weir coap bench --json` prints.
type CoAPBench struct {
	Result    BenchResult      `json:"result"`    // in the form of all measurements
	Stats     CoAPBenchStats   `json:"stats"`     // since the start
	Setup     float64          `json:"setup_s"`   // seconds for all clients and handshakes
	Handshake *BenchLatency    `json:"handshake"` // null: there was none
	Groups    []CoAPBenchGroup `json:"groups"`    // how evenly the clients were served
}

// CoAPBenchRun is one element of the list that `weir coap bench-all --json` prints.
type CoAPBenchRun struct {
	Test    string     `json:"test"`            // transport and mode
	Clients int        `json:"clients"`         // of the load
	Error   string     `json:"error,omitempty"` // why it failed, or what was lost; absent: nothing
	Bench   *CoAPBench `json:"bench,omitempty"` // absent: the server refused the first request
}

// CoAPBenchSample is a line of `weir coap bench --progress json`: the load since the line before it. Times of waits count from when a request
// was intended to be sent.
type CoAPBenchSample struct {
	At      time.Time      `json:"at"`         // end of the interval
	Period  float64        `json:"period_s"`   // its length
	Max     float64        `json:"max_ms"`     // longest wait for a response that came in the interval; 0: none came
	Waiting float64        `json:"waiting_ms"` // longest time that a client has waited by now for a response that has not come; 0: none waits
	Silence float64        `json:"silence_ms"` // longest time without a response to any client of a worker that ended in the interval
	Late    float64        `json:"late_ms"`    // how much later than intended this program did something: it was not scheduled
	Total   CoAPBenchStats `json:"total"`      // since the start
}

// CoAPBenchStats counts since the start of a load. Every field but Clients only grows.
type CoAPBenchStats struct {
	Sent            uint64 `json:"sent"`             // requests, and further blocks of them; retransmissions not counted
	Requests        uint64 `json:"requests"`         // answered with success (2.xx)
	Failed          uint64 `json:"failed"`           // answered with an error (4.xx, 5.xx) or RST
	Wrong           uint64 `json:"wrong"`            // of those answered with success, with an answer to another request; counted with --serials only
	Lost            uint64 `json:"lost"`             // requests without an answer after all retransmissions
	Retransmissions uint64 `json:"retransmissions"`  // of requests
	Errors          uint64 `json:"errors"`           // transmission errors: requests lost, failed, and failed handshakes
	Handshakes      uint64 `json:"handshakes"`       // completed
	Rehandshakes    uint64 `json:"rehandshakes"`     // completed or begun by a client that had had a session
	HandshakeErrors uint64 `json:"handshake_errors"` // timed out or refused
	LostSessions    uint64 `json:"lost_sessions"`    // sessions given up: fatal alert or a lost request
	Rebinds         uint64 `json:"rebinds"`          // changes of a client's source port
	Moves           uint64 `json:"moves"`            // of those, to another source address
	PathChallenges  uint64 `json:"path_challenges"`  // of the server, answered, after a change of address (RFC 9853)
	FirstBlocks     uint64 `json:"first_blocks"`     // answers of which only the first block was taken (RFC 7959)
	Refused         uint64 `json:"refused"`          // datagrams the kernel or the server's host refused (nothing listens, no buffer)
	Stray           uint64 `json:"stray"`            // datagrams and records that belong to nothing (late duplicates, forgeries)
	Notifications   uint64 `json:"notifications"`    // received, in mode observe
	Served          uint64 `json:"served"`           // requests of the server answered, or notifications sent to it, in the reverse modes
	Blocks          uint64 `json:"blocks"`           // messages behind the first one of a transfer in blocks
	Resumed         uint64 `json:"resumed"`          // of the handshakes, those that resumed a session
	Clients         int    `json:"clients"`          // with a session now (or started, without DTLS)
}

// CoAPBenchGroup is a set of clients that had about the same number of answered requests.
type CoAPBenchGroup struct {
	Clients int    `json:"clients"` // in the group
	From    uint64 `json:"from"`    // least number of requests
	To      uint64 `json:"to"`      // largest number of requests
}

// CoAPCheck is the output of `weir coap check --json`.
type CoAPCheck struct {
	URI          string          `json:"uri"`          // of the server
	Passed       int             `json:"passed"`       // cases
	Failed       int             `json:"failed"`       // cases
	Inconclusive int             `json:"inconclusive"` // cases
	Cases        []CoAPCheckCase `json:"cases"`        // in the order in which they ran
}

// CoAPCheckCase is the verdict of one case of the ETSI list.
type CoAPCheckCase struct {
	ID        string   `json:"id"`                  // such as TD_COAP_CORE_01
	Title     string   `json:"title"`               // what the case is about
	Verdict   string   `json:"verdict"`             // pass, fail or inconclusive: the server lacks what the case needs
	Reason    string   `json:"reason,omitempty"`    // of the verdict; absent: the case passed
	Sent      string   `json:"sent,omitempty"`      // the request whose answer made the case fail; absent: it did not fail, or not for an answer
	Expected  string   `json:"expected,omitempty"`  // of the answer; absent likewise
	Received  string   `json:"received,omitempty"`  // what came instead; absent likewise
	Reference string   `json:"reference,omitempty"` // where that is demanded: RFC and section; absent likewise
	Seconds   float64  `json:"seconds"`             // that the case took
	Trace     []string `json:"trace"`               // messages of the case, with arrows for their direction; the first 256
}
