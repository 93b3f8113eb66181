package node

import (
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/oscore"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/coap/stream/streamserver"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/metrics"
)

// Status is a snapshot of a node. It holds no secrets: no keys, no identities, no addresses of clients.
type Status struct {
	Version     string            `json:"version"`
	PID         int               `json:"pid"` // set by the caller of Status, as Handover
	Handover    HandoverStatus    `json:"keep" metric:"weir_coap"`
	Credentials CredentialsStatus `json:"credentials" metric:"weir_coap_credentials"`
	Reverse     ReverseStatus     `json:"reverse" metric:"weir_coap_reverse"`
	// Discovery is set by the caller of Status: how the Pods of the other nodes are followed; nil: the nodes are no Pods.
	Discovery *DiscoveryStatus `json:"discovery,omitempty" metric:"weir_coap_discovery"`
	Listeners []ListenerStatus `json:"listeners" metric:""` // in the order of Addresses
}

// HandoverStatus is what is stored beyond the life of a process.
type HandoverStatus struct {
	Supervisor string `json:"supervisor" metric:"_supervisor_gone" when:"gone" help:"1 if the supervisor has ended: no program restarts the server."` // yes, systemd, gone, none
	PID        int    `json:"pid,omitempty"`                                                                                                          // of the supervisor
	Starts     int    `json:"starts" metric:"_starts" help:"Serving processes that the supervisor has started."`
	Upgrades   int    `json:"upgrades"`       // of the binary
	Last       string `json:"last,omitempty"` // why the previous process ended
	Stored     int    `json:"stored" metric:"_kept_descriptors" help:"Sockets, and arenas of sessions, that the supervisor holds."`
	Capacity   int    `json:"capacity"` // maximum of them
	Refused    uint64 `json:"refused" metric:"_kept_descriptors_refused_total" help:"Sockets and arenas that end with the process: the supervisor was full or late."`
	Waiting    int    `json:"waiting" metric:"_kept_descriptors_waiting" help:"Sockets and arenas that the supervisor, or systemd, has not accepted yet; they are sent again."`
	State      string `json:"state,omitempty"`
	Unusable   string `json:"state_unusable,omitempty" metric:"_state_unusable" help:"1 if the directory of --state cannot be written: sessions do not outlive all processes."`
}

// DiscoveryStatus is how the Pods of the other nodes are followed.
type DiscoveryStatus struct {
	Pods    int    `json:"pods" metric:"_pods" help:"Other Pods that have an address and may run a node, as of the latest answer of the API server."`
	Ready   int    `json:"ready" metric:"_pods_ready" help:"Of these, the ones that are Ready."`
	Changes uint64 `json:"changes" metric:"_changes_total" help:"Times that the Pods, their addresses or states were different."`
	Errors  uint64 `json:"errors" metric:"_errors_total" help:"Refusals of the API server, and requests without an answer."`
	Error   string `json:"error,omitempty" metric:"_failed" help:"1 while the API server refuses or does not answer: the latest Pods count."`
}

// ReverseStatus counts what /reverse-request and /reverse-observe have clients asked for, on all listeners.
type ReverseStatus struct {
	RequestsAsked   uint64 `json:"requests_asked" metric:"_requests_asked_total" help:"Requests to clients that /reverse-request was asked for."`
	RequestsSent    uint64 `json:"requests_sent" metric:"_requests_sent_total" help:"Requests to clients that were sent."`
	RequestsPending int    `json:"requests_pending" metric:"_requests_pending" help:"Requests to clients that are still to be answered."`
	RequestsFailed  uint64 `json:"requests_failed" metric:"_requests_failed_total" help:"Runs of requests that ended because the client answered with an error or not at all, or a request could not be sent."`
	RequestsRefused uint64 `json:"requests_refused" metric:"_requests_refused_total" help:"POSTs to /reverse-request answered with 5.03 because there was no room."`

	Observations          int    `json:"observations" metric:"_observations" help:"Resources of clients that are observed now."`
	Registrations         uint64 `json:"registrations" metric:"_registrations_total" help:"Registrations sent to clients, repeated ones included."`
	RegistrationsFailed   uint64 `json:"registrations_failed" metric:"_registrations_failed_total" help:"Registrations that the client refused or did not answer."`
	ObservationsRefused   uint64 `json:"observations_refused" metric:"_observations_refused_total" help:"POSTs to /reverse-observe answered with 5.03 because there was no room."`
	NotificationsReceived uint64 `json:"notifications_received" metric:"_notifications_received_total" help:"Notifications of clients."`
}

// status is a snapshot of the counters.
func (e *extended) status() ReverseStatus {
	count := func(n *atomic.Int64) uint64 { return uint64(max(0, n.Load())) }
	r, w := &e.reverse, &e.watch
	return ReverseStatus{
		RequestsAsked: count(&r.requested), RequestsSent: count(&r.sent), RequestsPending: int(r.pending.Load()), RequestsFailed: count(&r.failed), RequestsRefused: count(&r.refused),
		Observations: int(w.active.Load()), Registrations: count(&w.registrations), RegistrationsFailed: count(&w.failed), ObservationsRefused: count(&w.refused),
		NotificationsReceived: count(&w.notifications),
	}
}

// CredentialsStatus describes the keys in use.
type CredentialsStatus struct {
	Generation uint64 `json:"generation" metric:"_generation" help:"Successful loads of the files of keys and certificates."` // 1 at the start, plus 1 for every successful reload
	Identities int    `json:"identities"`                                                                                     // in the PSK file
	Demo       bool   `json:"demo"`                                                                                           // the public sandbox identities are accepted
	Error      string `json:"error,omitempty" metric:"_failed" help:"1 while the last reload of keys and certificates failed; those before it are in use."`
}

// ListenerStatus is a snapshot of one listener.
type ListenerStatus struct {
	Address
	Engine    engine.Stats               `json:"engine" metric:"weir_coap_engine"`
	Exchange  exchange.Counters          `json:"exchange" metric:"weir_coap_exchange"`
	Resources resource.Counters          `json:"resources" metric:"weir_coap_resources"`                                                                   // bodies in blocks, observers
	OSCORE    oscore.Counters            `json:"oscore" metric:"weir_coap_oscore"`                                                                         // protected requests
	Pending   int                        `json:"pending" metric:"weir_coap_exchange_pending" help:"Messages that await an acknowledgement or their time."` // messages awaiting an acknowledgement or their time
	Streams   *streamserver.Stats        `json:"streams,omitempty" metric:"weir_coap_streams"`                                                             // over TCP and TLS
	Cluster   *cluster.Stats             `json:"cluster,omitempty" metric:"weir_coap_cluster"`
	Kept      *KeptStatus                `json:"kept,omitempty" metric:"weir_coap_kept"`                       // over DTLS, with what outlives the process
	Moves     *cluster.MoveStatus        `json:"moves,omitempty" metric:"weir_coap_cluster"`                   // sessions between nodes; nil: the link is not secured
	Copies    *cluster.ReplicationStatus `json:"replication,omitempty" metric:"weir_coap_cluster_replication"` // nil: sessions are not copied to another node
	Nodes     []cluster.NodeStatus       `json:"nodes,omitempty"`                                              // the other nodes as this one sees them
	Members   map[cluster.Liveness]int   `json:"-" metric:"weir_coap_cluster_nodes" key:"state" help:"Nodes of the cluster, by state: self, up, down, unknown (listed, and no message yet) and searched (an address where none has answered)."`
}

// statusWait bounds how long Status waits for a busy worker. After that it uses the worker's last known counters.
const statusWait = 200 * time.Millisecond

// share is one worker's part of the counters.
type share struct {
	worker    int
	counters  exchange.Counters
	resources resource.Counters
	oscore    oscore.Counters
	pending   int
}

// Status collects the counters of every worker and sums them. Safe from any goroutine; it takes up to 200 ms per listener
// when a worker is stuck.
func (n *Node) Status() Status {
	psk := n.keys.psk.Load()
	n.mu.Lock()
	status := Status{Version: n.cfg.Version, Credentials: CredentialsStatus{
		Generation: n.generation, Identities: len(psk.keys), Demo: psk.demo,
	}}
	if n.reloadErr != nil {
		status.Credentials.Error = n.reloadErr.Error()
	}
	n.mu.Unlock()
	status.Reverse = n.extended.status()
	addresses := n.Addresses()
	for i, l := range n.listeners {
		s := ListenerStatus{Address: addresses[i]}
		if l.engine != nil {
			s.Engine, s.Kept = l.engine.Stats(), l.kept
		} else {
			streams := l.streams.Stats()
			s.Streams = &streams
		}
		l.collect(&s)
		if l.cluster != nil {
			stats := l.cluster.Stats()
			s.Cluster, s.Nodes, s.Moves = &stats, l.cluster.Status(), l.cluster.Moves()
			s.Copies, s.Members = l.cluster.Replication(), cluster.ByState(s.Nodes)
		}
		status.Listeners = append(status.Listeners, s)
	}
	return status
}

// collect adds the handlers' counters, read on their own workers, to into. The sums never decrease.
func (l *listener) collect(into *ListenerStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	shares := make(chan share, len(l.handlers))
	awaited := 0
	for i, h := range l.handlers {
		if h.worker.Post(func() {
			shares <- share{i, h.endpoint.Counters(), h.server.Counters(), h.oscoreCounters(), h.endpoint.Pending()}
		}) {
			awaited++
		}
	}
	l.shares = append(l.shares, make([]share, len(l.handlers)-len(l.shares))...)
	timeout := time.NewTimer(statusWait)
	defer timeout.Stop()
	for waiting := true; waiting && awaited > 0; awaited-- {
		select {
		case s := <-shares:
			l.shares[s.worker] = s
		case <-timeout.C:
			waiting = false
		}
	}
	for i := range l.shares {
		metrics.Add(&into.Exchange, &l.shares[i].counters)
		metrics.Add(&into.Resources, &l.shares[i].resources)
		metrics.Add(&into.OSCORE, &l.shares[i].oscore)
		into.Pending += l.shares[i].pending
	}
}
