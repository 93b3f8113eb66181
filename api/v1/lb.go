package v1

import "time"

// LBStatus is the answer of GET /status of `weir lb run`, and the output of `weir lb status --json`.
type LBStatus struct {
	BalancerStatus
	// Kernel is the eBPF data path, or the program of the fast path in front of queues. Absent: there is none.
	Kernel *EBPFStatus `json:"ebpf,omitempty"`
	// Queues is the NFQUEUE data path. Absent: another data path serves.
	Queues *NFQueueStatus `json:"nfqueue,omitempty"`
	// Fast says whether a fast path is in front of the queues. Absent: the data path is not NFQUEUE.
	Fast *FastPathStatus `json:"fast,omitempty"`
}

// BalancerStatus is what every data path has in common: the configuration in force and who takes new flows.
type BalancerStatus struct {
	Generation uint64 `json:"generation" metric:"weir_generation" help:"Number of what is applied; of a load balancer that of the snapshot, which overrides and probes change too."` // number of the snapshot in force, which overrides and probes change too; 0: none yet
	// ConfigGeneration is the number of the configuration in force, as in ConfigAnswer: overrides and probes do not change it. Absent: the
	// configuration is not that of a file or server.
	ConfigGeneration uint64 `json:"config_generation,omitempty" metric:"weir_config_generation" help:"Number of the configuration in force, which overrides and probes do not change."`
	// Unsaved says that the configuration in force differs from its file.
	Unsaved   bool      `json:"unsaved" metric:"weir_config_unsaved" help:"1 while the configuration in force differs from its file: a restart loses the difference."`
	AppliedAt time.Time `json:"applied_at"`                                                                              // when it was applied
	Error     string    `json:"error,omitempty" metric:"weir_config_failed" help:"1 while the last change was refused."` // why the last change was refused; absent after one that succeeded
	// FailedAt is when the last configuration was refused. Absent: it was not.
	FailedAt *time.Time `json:"failed_at,omitempty"`
	Reloads  uint64     `json:"reloads" metric:"weir_config_reloads_total" help:"Configurations applied."` // configurations applied since the start
	Failures uint64     `json:"failures" metric:"weir_config_failures_total" help:"Changes refused."`      // changes refused since the start
	// Revision is 32 hexadecimal digits of the SHA-256 of the document in force. Absent: there is no document.
	Revision string `json:"revision,omitempty"`
	// Source is where the configuration comes from. Absent: a file.
	Source   *ConfigSource   `json:"source,omitempty" metric:""`
	Datapath string          `json:"datapath"`           // ebpf, nfqueue or udp
	Services []ServiceStatus `json:"services" metric:""` // ordered by name; null before the first configuration
	Tier     []MemberStatus  `json:"tier,omitempty"`     // balancers that share fragments; absent: there is no tier
	// Names are the DNS names of backends, ordered. Absent: there are none.
	Names []DNSName `json:"names,omitempty" metric:""`
	// Announce is what is announced of the addresses. Absent: the configuration announces nothing.
	Announce *AnnounceStatus `json:"announce,omitempty" metric:""`
	// Sync is how the state of translated flows is shared with other balancers. Absent: the configuration has no peers.
	Sync *SyncStatus `json:"sync,omitempty" metric:""`
}

// Applied is a line of the answer of POST /applied: which configuration the data path has applied. There is one now, one at each change,
// and one every 10 s.
type Applied struct {
	Generation uint64     `json:"generation"`           // number of the snapshot in force, as in BalancerStatus; 0: none yet
	AppliedAt  *time.Time `json:"applied_at,omitempty"` // when it was applied; absent: none yet
	Error      string     `json:"error,omitempty"`      // why the last change was refused; absent after one that succeeded
}

// ConfigSource is the config discovery service from which a load balancer has its configuration.
type ConfigSource struct {
	Service      string `json:"service"`                                                                                                                      // its address
	Node         string `json:"node"`                                                                                                                         // as which node the load balancer asks
	Connected    bool   `json:"connected" metric:"weir_config_source_connected" help:"1 while the config discovery service is connected."`                    // now
	Version      string `json:"version,omitempty"`                                                                                                            // of the configuration in force; absent: none yet
	Restored     bool   `json:"restored,omitempty"`                                                                                                           // the configuration in force is from the state file: the service has sent none since the start
	Refused      string `json:"refused,omitempty"`                                                                                                            // version that was refused; absent: none, or a newer one is in force
	RefusedError string `json:"refused_error,omitempty" metric:"weir_config_source_refused" help:"1 while the newest configuration is refused."`              // why it was refused; absent as refused
	StateError   string `json:"state_error,omitempty" metric:"weir_config_source_state_failed" help:"1 while the configuration could not be kept."`           // why a restart would not find the configuration; absent: it would, or no file is set
	Error        string `json:"error,omitempty"`                                                                                                              // why there is no connection; absent: there is
	Received     uint64 `json:"received" metric:"weir_config_source_received_total" help:"Configurations received from the config discovery service."`        // since the start
	Connects     uint64 `json:"connects" metric:"weir_config_source_connects_total" help:"Connections to the config discovery service."`                      // since the start
	Failures     uint64 `json:"failures" metric:"weir_config_source_failures_total" help:"Connections to the config discovery service that failed or ended."` // since the start
}

// ServiceStatus is one service as it is in force.
type ServiceStatus struct {
	Name     string   `json:"name" label:"service"` // unique in the configuration
	Mode     string   `json:"mode"`                 // nat, l2dsr, l3dsr or mark
	Tunnel   string   `json:"tunnel,omitempty"`     // encapsulation; absent: mode is not l3dsr
	Affinity string   `json:"affinity"`             // what keeps to one backend: flow, source, ...
	CID      []string `json:"cid,omitempty"`        // layouts of connection ids, for people; absent: none
	// State is up, down (an override), no_backend, or fail_open: all probes fail and are ignored.
	State string   `json:"state" metric:"weir_service_fail_open" when:"fail_open" help:"1 while every probe of the service fails and their results are ignored."`
	VIPs  []string `json:"vips"` // protocol, address or prefix, and port or ports; empty: flow rules alone choose the service
	// Flows are its flow rules, the one that wins first. Absent: none.
	Flows   []FlowRuleStatus `json:"flows,omitempty"`
	Hashing string           `json:"hashing,omitempty"` // differences from the keyed hash of the flow with conntrack; absent: none
	// NoBackendMark is the fwmark of packets that no backend can take. Absent: they are dropped.
	NoBackendMark *uint32 `json:"no_backend_mark,omitempty"`
	// Timeouts are the lifetimes of silent flows, such as 30s or never, by udp, tcp_opening, tcp_established, tcp_closing and sctp;
	// those that the service can have.
	Timeouts    map[string]string `json:"timeouts"`
	NewFlowRate int               `json:"new_flow_rate,omitempty"`                 // new flows per second of one source; absent: no limit
	SNAT        string            `json:"snat,omitempty"`                          // addresses and ports that backends see instead of clients; absent: none
	Health      string            `json:"health,omitempty"`                        // the probe, for people; absent: none
	Cluster     *ClusterStatus    `json:"cluster,omitempty" metric:"weir_cluster"` // what the nodes of its CoAP cluster report; absent: it follows none
	Backends    []BackendStatus   `json:"backends" metric:""`                      // ordered by name; null: there is none
	// EarlierTables are the Maglev tables from before the last changes of its backends that are still in use. Absent: generations is 0.
	EarlierTables *EarlierTables `json:"earlier_tables,omitempty" metric:"weir_earlier_tables"`
}

// EarlierTables are the earlier Maglev tables of a service. They decide about packets that have no conntrack entry and do not open a flow, after a
// failover above all.
type EarlierTables struct {
	Count int `json:"count" metric:"_" help:"Earlier Maglev tables of the service in use."` // tables in use
	// Share is that of the slots, 0 to 1, in which they give packets in the middle of a TCP connection another backend than the present table.
	Share  float64        `json:"share" metric:"_share" help:"Share of the slots in which an earlier table gives packets in the middle of a TCP connection another backend than the present one."`
	Tables []EarlierTable `json:"tables"` // the newest first
}

// EarlierTable is one of them.
type EarlierTable struct {
	Replaced time.Time      `json:"replaced"` // when the next table came into force
	Until    time.Time      `json:"until"`    // when it is no longer used
	Weights  map[string]int `json:"weights"`  // of the backends that had slots, by name
}

// ClusterStatus is what the nodes of a CoAP cluster have reported to a service that follows it. BackendStatus.Nodes has the owner ids that
// result.
type ClusterStatus struct {
	Age float64 `json:"age_seconds" metric:"_view_age_seconds" help:"Time since a node of the CoAP cluster has answered; before the first answer since the start."` // seconds since a node has answered
	// Old: no node has answered for the time old_after of the configuration; the last view stays in force.
	Old      bool                `json:"old" metric:"_view_old" help:"1 while no node of the CoAP cluster has answered for longer than old_after; the last view stays in force."`
	Conflict string              `json:"conflict,omitempty" metric:"_conflict" help:"1 while two nodes of the CoAP cluster have one node id."` // what nodes contradict each other in; absent: nothing
	Nodes    []ClusterNodeStatus `json:"nodes" metric:""`                                                                                      // queried nodes, ordered by backend
}

// ClusterNodeStatus is one queried node.
type ClusterNodeStatus struct {
	Backend  string   `json:"backend" label:"backend"`                                                                        // name of its backend
	Admin    string   `json:"admin"`                                                                                          // address that is queried
	IDs      []uint32 `json:"ids,omitempty"`                                                                                  // node ids that it has reported last; absent: it has never answered
	Answers  bool     `json:"answers" metric:"_node_answers" help:"1 while the node of the CoAP cluster answers queries."`    // to the newest query
	Draining bool     `json:"draining,omitempty" metric:"_node_draining" help:"1 while the node of the CoAP cluster drains."` // it moves its sessions to other nodes, or has done so and ended
	Error    string   `json:"error,omitempty"`                                                                                // why the newest query failed; absent: it has not
	// Queries are those of the node since the configuration names it.
	Queries ClusterQueries `json:"queries" metric:"_queries_total" help:"Queries of nodes of the CoAP cluster for owners, by result: pass or fail."`
}

// ClusterQueries counts queries of one node since the configuration names it.
type ClusterQueries struct {
	Passed uint64 `json:"passed" metric:"_,result=pass"` // answered
	Failed uint64 `json:"failed" metric:"_,result=fail"` // not answered in time, refused, or not understood
}

// FlowRuleStatus is one flow rule of a service of mode mark.
type FlowRuleStatus struct {
	Name     string `json:"name"`     // unique in the service
	Priority int    `json:"priority"` // the greater one wins
	Place    int    `json:"place"`    // order of precedence over all services; 1 is first
	Rule     string `json:"rule"`     // what it matches, for people
}

// MemberStatus is one balancer of the tier that shares fragments.
type MemberStatus struct {
	Name  string  `json:"name"`            // unique in the tier
	Mark  uint32  `json:"mark"`            // fwmark of fragments for it
	Index *int    `json:"index,omitempty"` // its slot with hash nfqlb; absent: another hash
	Self  bool    `json:"self,omitempty"`  // it is the balancer that answers
	Share float64 `json:"share"`           // of the fragments, 0 to 1
}

// BackendStatus is one backend of a service.
type BackendStatus struct {
	Name     string   `json:"name" label:"backend"`                                                                 // unique in the service
	Address  string   `json:"address,omitempty"`                                                                    // IPv4 if it has both families; absent in mode mark
	Address2 string   `json:"address2,omitempty"`                                                                   // IPv6 if it has both families; else absent
	Port     uint16   `json:"port,omitempty"`                                                                       // absent: that of the client's packet
	Mark     uint32   `json:"mark,omitempty"`                                                                       // fwmark; absent: mode is not mark
	Index    *int     `json:"index,omitempty"`                                                                      // its slot with hash nfqlb, from the file or assigned; absent: another hash
	Weight   int      `json:"weight"`                                                                               // share of new flows compared with other backends
	State    string   `json:"state" metric:"weir_backend_up" when:"up" help:"1 while the backend takes new flows."` // up, draining or down: configuration and overrides together
	Action   string   `json:"action,omitempty"`                                                                     // drop or reject: its share of new flows goes nowhere; absent: forward
	Override string   `json:"override,omitempty"`                                                                   // what, and of which origin, such as "drain by operator"; absent: none
	Nodes    []uint32 `json:"nodes,omitempty"`                                                                      // owner ids in connection ids; absent: none, or they differ by layout
	// LayoutNodes are the owner ids by layout, in the order of ServiceStatus.CID. Absent: Nodes has them.
	LayoutNodes [][]uint32 `json:"layout_nodes,omitempty"`
	Share       float64    `json:"share" metric:"weir_backend_share" help:"Share of new flows, 0 to 1."` // of new flows, 0 to 1
}

// ServiceShown is one element of the list that `weir lb show --json` prints. Its key flows has the live flows, so the flow rules of the
// service are not in it: LBStatus has them.
type ServiceShown struct {
	ServiceStatus
	Reasons map[string]Count               `json:"reasons,omitempty"` // packets of the eBPF data path, by reason; absent: none, or another data path
	Carried map[string]EBPFBackendCounters `json:"carried,omitempty"` // by backend; absent as Reasons
	Flows   map[string]int                 `json:"flows,omitempty"`   // live flows by backend; absent as Reasons
	// Queued is what the NFQUEUE data path carried. Absent: another data path serves.
	Queued *NFQueueService `json:"nfqueue,omitempty"`
}

// OverrideAnswer is the answer of POST /drain, /undrain, /down and /up.
type OverrideAnswer struct {
	Backend  string `json:"backend"`  // empty: all of the service
	Override string `json:"override"` // drain, none, down or up
	Service  string `json:"service"`  // as asked
}
