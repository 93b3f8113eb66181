package v1

import (
	"net/netip"
	"time"
)

// TurnStatus is the answer of GET /status of `weir turn gateway`.
type TurnStatus struct {
	TurnProcess
	TurnStats
	Config *TurnConfigStatus `json:"config,omitempty"` // the configuration in force; absent while the gateway starts
	Names  []DNSName         `json:"names,omitempty"`  // DNS names of clusters, ordered; absent: none
}

// TurnProcess is the process that serves, and what outlives it.
type TurnProcess struct {
	PID      int           `json:"pid"`     // of the serving process
	Version  string        `json:"version"` // of its binary
	Handover HandoverStats `json:"keep"`    // sockets and records that outlive it
}

// HandoverStats is what is stored beyond the life of a process, and what could not be stored.
type HandoverStats struct {
	Supervisor string `json:"supervisor"`      // yes, gone or none
	PID        int    `json:"pid,omitempty"`   // of the supervisor; absent: none
	Starts     int    `json:"starts"`          // starts of a serving process, by this supervisor and its predecessors
	Upgrades   int    `json:"upgrades"`        // of the binary
	Last       string `json:"last,omitempty"`  // why the previous process ended; absent: there was none
	Sockets    int    `json:"sockets"`         // stored now
	Capacity   int    `json:"capacity"`        // bound on sockets
	Refused    uint64 `json:"refused"`         // sockets that could not be stored: their sessions do not survive the process
	Waiting    int    `json:"waiting"`         // sockets that the supervisor, or systemd, has not accepted yet; they are sent again
	State      string `json:"state,omitempty"` // directory of the journal; absent: none was requested
	// Unusable is why that directory has no journal. Absent: it has one, or none was requested.
	Unusable string          `json:"state_unusable,omitempty"`
	Journal  HandoverJournal `json:"journal"` // records of allocations
}

// HandoverJournal is the journal of records.
type HandoverJournal struct {
	Records     int    `json:"records"`     // allocations
	Bytes       int64  `json:"bytes"`       // size of the file
	Compactions uint64 `json:"compactions"` // times that it was written again
	Refused     uint64 `json:"refused"`     // records beyond a limit: their allocations do not survive the process
	Failed      uint64 `json:"failed"`      // writes that failed
	LostFrames  uint64 `json:"lost_frames"` // damaged records that were skipped
	LostBytes   int64  `json:"lost_bytes"`  // size of those
}

// TurnStats is the gateway itself.
type TurnStats struct {
	Workers   int            `json:"workers"`   // threads that relay
	Ready     bool           `json:"ready"`     // new clients are welcome
	Draining  bool           `json:"draining"`  // it waits for its allocations to end
	Totals    TurnCounts     `json:"totals"`    // of all listeners
	Listeners []TurnListener `json:"listeners"` // null: none
	Clusters  []TurnCluster  `json:"clusters"`  // ordered by name; null: none
	// Reasons counts how messages and packets ended, by reason.
	Reasons  map[string]uint64 `json:"reasons"`
	Offload  string            `json:"offload"`          // where the kernel relays and why there; empty: it does not
	Withheld TurnWithheld      `json:"answers_withheld"` // answers that limits suppressed
	// Displaced counts sources without valid credentials that were evicted because the table of those limits was full.
	Displaced uint64 `json:"rate_limit_displaced"`
}

// TurnCounts counts in total, for a listener, or for a cluster.
type TurnCounts struct {
	Allocations int `json:"allocations"` // now
	Permissions int `json:"permissions"` // now
	Channels    int `json:"channels"`    // now
	// Suspended is how many further permissions and channels there are whose routes are missing at present.
	Suspended int    `json:"suspended"`
	Up        Count  `json:"up"`     // from clients to peers: packets and bytes of user data, without headers
	Down      Count  `json:"down"`   // from peers to clients, likewise
	Opened    uint64 `json:"opened"` // allocations since the start
}

// TurnListener is one listener.
type TurnListener struct {
	Name        string            `json:"name"`        // unique
	Protocol    string            `json:"protocol"`    // udp, tcp, tls or dtls
	Address     netip.AddrPort    `json:"address"`     // that clients send to
	Connections int               `json:"connections"` // of clients over TCP, TLS and DTLS
	ReadBuffer  int               `json:"read_buffer"` // bytes that the kernel granted to each UDP socket
	Overflowed  uint64            `json:"overflowed"`  // datagrams that found the kernel's buffer full
	Reasons     map[string]uint64 `json:"reasons"`     // as TurnStats.Reasons
	TurnCounts
}

// TurnCluster is one cluster of peers.
type TurnCluster struct {
	Name string `json:"name"` // unique
	TurnCounts
}

// TurnWithheld counts suppressed answers to requests without valid credentials, by the limit that was reached.
type TurnWithheld struct {
	Unproven uint64 `json:"unauthenticated"`       // to one unproven source, but for Binding requests
	Bindings uint64 `json:"bindings"`              // to Binding requests of one unproven source
	Total    uint64 `json:"unauthenticated_total"` // to all unproven sources
	Proven   uint64 `json:"proven"`                // to one proven source
}

// TurnConfigStatus is the configuration of a gateway.
type TurnConfigStatus struct {
	File       string      `json:"file,omitempty"`                                                                                                                                        // absent: flags are all there is
	Generation uint64      `json:"generation" metric:"weir_generation" help:"Number of what is applied; of a load balancer that of the snapshot, which overrides and probes change too."` // number of the configuration in force
	Applied    time.Time   `json:"applied"`                                                                                                                                               // when it was applied
	Reloads    uint64      `json:"reloads" metric:"weir_config_reloads_total" help:"Configurations applied."`                                                                             // since the start
	Failures   uint64      `json:"failures" metric:"weir_config_failures_total" help:"Changes refused."`                                                                                  // changes that were refused
	Error      string      `json:"error,omitempty" metric:"weir_config_failed" help:"1 while the last change was refused."`                                                               // of the last change, which is not in force; absent: it is
	Failed     time.Time   `json:"failed,omitzero"`                                                                                                                                       // when it was refused; absent as Error
	Change     *TurnChange `json:"change,omitempty"`                                                                                                                                      // what the last reload did; absent: there was none
	Notes      []string    `json:"notes,omitempty"`                                                                                                                                       // settings of the file without effect; absent: none
	URIs       []string    `json:"uris"`                                                                                                                                                  // where clients find the listeners
	// Discovery is the config discovery service that the configuration comes from; absent: it does not come from one.
	Discovery *ConfigDiscovery `json:"discovery,omitempty" metric:""`
}

// TurnAuthStatus is the status of the authentication service of TURN gateways.
type TurnAuthStatus struct {
	PID       int             `json:"pid"`       // of the process
	Version   string          `json:"version"`   // of weir
	Discovery ConfigDiscovery `json:"discovery"` // where the gateways' configurations come from
	Configs   int             `json:"configs"`   // gateways that have credentials
	Issued    uint64          `json:"issued"`    // requests that were answered with credentials
	Refused   uint64          `json:"refused"`   // requests without the right key
	Wrong     uint64          `json:"wrong"`     // requests with a wrong parameter
	Unmatched uint64          `json:"unmatched"` // requests that no listener fits, or that came before the first configuration
	Ignored   uint64          `json:"ignored"`   // configurations that could not be read
}

// ConfigDiscovery is the state of a client of a config discovery service.
type ConfigDiscovery struct {
	Service   string    `json:"service"`                                                                                                                     // URL of the service
	ID        string    `json:"id"`                                                                                                                          // NAMESPACE/NAME of the configuration
	Node      string    `json:"node,omitempty"`                                                                                                              // name of this node; absent: unknown
	Connected bool      `json:"connected" metric:"weir_config_discovery_connected" help:"1 while the config discovery service is connected."`                // now
	Since     time.Time `json:"since,omitzero"`                                                                                                              // when Connected changed last; absent: it never was
	Connects  uint64    `json:"connects" metric:"weir_config_discovery_connects_total" help:"Connections made to the config discovery service."`             // since the start
	Failures  uint64    `json:"failures" metric:"weir_config_discovery_failures_total" help:"Connections that could not be made, or that ended."`            // since the start
	Received  uint64    `json:"received" metric:"weir_config_discovery_received_total" help:"Configurations received from the config discovery service."`    // since the start
	Kept      bool      `json:"kept" metric:"weir_config_discovery_kept" help:"1 while the configuration in force is one that an earlier process received."` // the configuration in force comes from an earlier process
	Error     string    `json:"error,omitempty"`                                                                                                             // why there is no connection; absent: there is one
}

// TurnChange says what a reload did. Listeners are identified by their names.
type TurnChange struct {
	Restarted    []string       `json:"restarted,omitempty"`    // closed, and opened at another address, port or protocol; absent: none
	Added        []string       `json:"added,omitempty"`        // opened; absent: none
	Removed      []string       `json:"removed,omitempty"`      // closed; absent: none
	Certificates []string       `json:"certificates,omitempty"` // have another certificate from the next handshake on; absent: none
	Ended        map[string]int `json:"ended,omitempty"`        // allocations that ended, by reason; absent: none
	Permissions  int            `json:"permissions,omitempty"`  // suspended because the routes no longer allow them; absent: none
	Channels     int            `json:"channels,omitempty"`     // suspended likewise; absent: none
	Connections  int            `json:"connections,omitempty"`  // to peers (RFC 6062), suspended likewise; absent: none
	Resumed      int            `json:"resumed,omitempty"`      // permissions, channels and connections that the routes allow again; absent: none
	Notes        []string       `json:"notes,omitempty"`        // what takes effect at the next start only; absent: nothing
}

// MaxTurnUsers is the maximum number of users in one answer of GET /users.
const MaxTurnUsers = 100_000

// TurnUserList is the answer of GET /users, and the output of `weir turn users --json`.
type TurnUserList struct {
	At    int64      `json:"at"`    // when it was made, in Unix nanoseconds
	Users []TurnUser `json:"users"` // in the order that the request names; default: the oldest first
	Total int        `json:"total"` // users that match the query; more than are listed if the limit was reached
}

// TurnUser is one allocation. Its moments are in Unix nanoseconds; 0: never.
type TurnUser struct {
	ID          uint64           `json:"id"`                     // unique, below 2^53
	User        string           `json:"user"`                   // name of the credentials
	Client      netip.AddrPort   `json:"client"`                 // as the gateway sees it
	Transport   string           `json:"transport"`              // udp, tcp, tls or dtls
	Listener    string           `json:"listener"`               // name
	Relay       []netip.AddrPort `json:"relay"`                  // addresses that peers see, one of each family
	RelayPublic []netip.AddrPort `json:"relay_public,omitempty"` // as reported to clients if a NAT is in front of Relay; else absent
	TCP         bool             `json:"tcp"`                    // peers are reached over TCP (RFC 6062)
	Created     int64            `json:"created"`                // moment
	Expires     int64            `json:"expires"`                // moment, unless the client refreshes the allocation
	Permissions int              `json:"permissions"`            // in force
	Channels    int              `json:"channels"`               // in force
	Suspended   int              `json:"suspended,omitempty"`    // permissions and channels whose routes are missing; absent: none
	Peers       []netip.AddrPort `json:"peers"`                  // of permissions (port 0) and channels
	Up          Count            `json:"up"`                     // from the client to peers: packets and bytes of user data
	Down        Count            `json:"down"`                   // from peers to the client, likewise
	LastUp      int64            `json:"last_up"`                // moment of the last packet from the client
	LastDown    int64            `json:"last_down"`              // moment of the last packet to the client
	Offloaded   int              `json:"offloaded"`              // channels that the kernel relays
}

// TurnImport is the answer of POST /allocations, and the output of `weir turn import --json`.
type TurnImport struct {
	Restored int    `json:"restored"`      // allocations
	Refused  int    `json:"refused"`       // allocations
	Why      string `json:"why,omitempty"` // the reason for the first refused one; absent: none
}

// TurnUpgradeAnswer is the answer of POST /upgrade: the new binary was tested, and the process hands over.
type TurnUpgradeAnswer struct {
	PID int `json:"pid"` // of the process that hands over
}

// TurnUpgraded is the output of `weir turn upgrade --json`.
type TurnUpgraded struct {
	From     string  `json:"from"`     // version
	To       string  `json:"to"`       // version
	PID      int     `json:"pid"`      // of the new serving process
	Seconds  float64 `json:"seconds"`  // from the request until the new process answered
	Records  int     `json:"records"`  // allocations in the journal
	Sockets  int     `json:"sockets"`  // that were handed over
	Upgrades int     `json:"upgrades"` // of this gateway so far
}

// TurnGateway summarizes a gateway's configuration without its secrets.
type TurnGateway struct {
	Name      string              `json:"name"`      // of the gateway
	Realm     string              `json:"realm"`     // of its credentials
	Auth      string              `json:"auth"`      // static, ephemeral or none
	Users     int                 `json:"users"`     // static ones
	Secrets   int                 `json:"secrets"`   // that ephemeral credentials may be made with
	Listeners []TurnGatewayListen `json:"listeners"` // null: none
	Clusters  []TurnGatewayPeers  `json:"clusters"`  // null: none
}

// TurnGatewayListen is one listener of a configuration.
type TurnGatewayListen struct {
	Name       string   `json:"name"`        // unique
	URI        string   `json:"uri"`         // where clients find it
	Address    string   `json:"address"`     // protocol, address and port, for people
	RelayPorts string   `json:"relay_ports"` // range
	Routes     []string `json:"routes"`      // names of the clusters that its clients may reach; null: none
}

// TurnGatewayPeers is one cluster of a configuration.
type TurnGatewayPeers struct {
	Name      string   `json:"name"`      // unique
	Protocol  string   `json:"protocol"`  // udp or tcp
	Endpoints []string `json:"endpoints"` // addresses, prefixes and DNS names; null: none
}

// TurnCat is what `weir turn cat --json` prints at its end.
type TurnCat struct {
	Listen  string  `json:"listen"`  // where clients of the tunnel send to
	Server  string  `json:"server"`  // URI of the TURN server
	Peer    string  `json:"peer"`    // where the tunnel ends
	Seconds float64 `json:"seconds"` // that it ran

	Clients     int    `json:"clients"`      // now
	ClientsEver uint64 `json:"clients_ever"` // in all
	PeakClients int    `json:"peak_clients"` // at one time
	Sessions    int    `json:"sessions"`     // clients with an allocation ready for data

	Allocations      uint64 `json:"allocations"`       // made
	AllocationsLost  uint64 `json:"allocations_lost"`  // because the server disappeared
	AllocationsMoved uint64 `json:"allocations_moved"` // replaced because the credentials expired
	Failures         uint64 `json:"failures"`          // failed attempts to make one

	UpPackets   uint64 `json:"up_packets"`   // from clients to the server
	UpBytes     uint64 `json:"up_bytes"`     // user data of those
	DownPackets uint64 `json:"down_packets"` // from the server to clients
	DownBytes   uint64 `json:"down_bytes"`   // user data of those

	// Datagrams that were dropped, by reason; Idle counts clients.
	DroppedGap   uint64 `json:"dropped_gap"`   // of clients without a session at that moment
	DroppedFull  uint64 `json:"dropped_full"`  // of clients beyond the bound
	DroppedQueue uint64 `json:"dropped_queue"` // a stream was too slow
	DroppedLong  uint64 `json:"dropped_long"`  // longer than a ChannelData message can be
	SendErrors   uint64 `json:"send_errors"`   // refused by the kernel
	Strays       uint64 `json:"strays"`        // from the server, but of no session
	Overflowed   uint64 `json:"overflowed"`    // found the listener's receive buffer full
	Idle         uint64 `json:"idle"`          // clients removed because they were silent
}
