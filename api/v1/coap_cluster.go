package v1

import "time"

import "net/netip"

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

// CoAPDiscovery is how a node learns from the API server of Kubernetes which Pods run the other nodes. Counters are since the start.
type CoAPDiscovery struct {
	Pods    int    `json:"pods"`            // other ones that have an address and may run, as of the latest answer
	Ready   int    `json:"ready"`           // of these
	Changes uint64 `json:"changes"`         // times that the Pods, their addresses or states were different
	Errors  uint64 `json:"errors"`          // refusals, and requests without an answer
	Error   string `json:"error,omitempty"` // the newest one; absent: none of late
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
	Inherited   uint64 `json:"inherited"`             // sessions of the process before this one that go on here, since no other node has taken them over
	NotRestored uint64 `json:"not_restored"`          // those that could not go on here
	TakeOvers   uint64 `json:"take_overs"`            // processes of other nodes whose sessions were taken over
	Fenced      uint64 `json:"fenced"`                // times that the sessions of this node were taken over while it was running
	Store       string `json:"store"`                 // where nodes agree: kubernetes, etcd or embedded
	StoreErrors uint64 `json:"store_errors"`          // requests to the store that failed
	StoreError  string `json:"store_error,omitempty"` // why the newest one has; absent: it has not
}

// CoAPOwner is which node has the sessions whose connection ids name another one.
type CoAPOwner struct {
	Shard   uint8  `json:"shard"`   // node id in the connection ids
	Owner   uint8  `json:"owner"`   // node that has the sessions
	Version uint32 `json:"version"` // of several answers the highest one holds
}

// CoAPOwners is a line of the answer of POST /owners of a CoAP server: which nodes of a cluster it is, and where sessions have moved. There
// is one now, one at each change, and one every OwnersEvery.
type CoAPOwners struct {
	Nodes []CoAPOwnNode `json:"nodes"` // own ones
}

// CoAPOwnNode is a node of a cluster as it knows itself.
type CoAPOwnNode struct {
	ID       uint32      `json:"id"`               // node id in the connection ids that it makes
	Draining bool        `json:"draining"`         // it moves its sessions to other nodes
	Owners   []CoAPOwner `json:"owners,omitempty"` // of shards that were ever moved; absent: all are at home
}

// OwnersEvery is the longest time between two lines of POST /owners.
const OwnersEvery = time.Second

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
	// Moves is how its sessions move to and from other nodes; absent: they do not, because the link is not secured.
	Moves *CoAPMoves `json:"moves,omitempty"`
	// Discovery is how the Pods of the other nodes are followed; absent: the nodes are no Pods.
	Discovery *CoAPDiscovery `json:"discovery,omitempty"`
}
