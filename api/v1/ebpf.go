package v1

import "net/netip"

// EBPFStatus is the state of the eBPF data path.
type EBPFStatus struct {
	EBPFReport
	EBPFCounters
}

// EBPFReport says where the programs are and how full their tables are.
type EBPFReport struct {
	Pins       string          `json:"pins,omitempty"`       // directory that keeps tables and programs; absent: none
	TookOver   bool            `json:"took_over"`            // the tables of an earlier run were found there
	Interfaces []EBPFInterface `json:"interfaces" metric:""` // with a program
	Tables     []EBPFTable     `json:"tables"`               // empty before the first configuration
	NextHops   []NextHop       `json:"next_hops" metric:""`  // ordered by service, backend and address; none in mode mark
	// Flows counts the live flows, by service and backend.
	Flows map[string]map[string]int `json:"flows"`
	// EarlierDropped are the services, in order, whose earlier Maglev tables found no room in the maps: they are not used. Absent: none.
	EarlierDropped []string `json:"earlier_tables_dropped,omitempty"`
}

// EBPFInterface is one interface with a program.
type EBPFInterface struct {
	Name   string   `json:"name" label:"interface"`                                                                                                                 // such as eth0
	Hook   string   `json:"hook" label:"hook"`                                                                                                                      // xdp or tcx
	Why    string   `json:"why"`                                                                                                                                    // why this hook, for people
	Gone   bool     `json:"gone,omitempty" metric:"weir_attached" when:"false" help:"1 for each interface with a program, by hook; 0 while the interface is gone."` // the interface is not there
	Others []string `json:"beside,omitempty"`                                                                                                                       // other programs on the hook when Weir attached; absent: none
}

// EBPFTable says how full a table is.
type EBPFTable struct {
	Name string `json:"name"` // flows, replies, fragments, services, backends, ...
	Used int    `json:"used"` // entries
	Size int    `json:"size"` // entries that memory is allocated for: the bound
	// Configured is what limits says, for which Size has room to spare, so that the hash seldom finds its buckets full. Absent: the table
	// has no limit of its own in the configuration.
	Configured int `json:"configured,omitempty"`
	// Proven are those of Used that make no room for new flows: TCP that is established, others that were answered (mode nat) or
	// had a second packet. Only of the table flows; absent: none.
	Proven int `json:"proven,omitempty"`
}

// NextHop says how packets reach one address of a backend.
type NextHop struct {
	Service   string `json:"service" label:"service"`                                                                            // name
	Backend   string `json:"backend" label:"backend"`                                                                            // name
	Address   string `json:"address" label:"address"`                                                                            // of the backend
	State     string `json:"state" metric:"weir_next_hop_ready" when:"ready" help:"1 while the next hop to a backend is known."` // unknown, ready or failed
	Interface string `json:"interface,omitempty"`                                                                                // that packets leave by; absent: not known
	Link      string `json:"link,omitempty"`                                                                                     // MAC address; absent: not ready
	MTU       int    `json:"mtu,omitempty"`                                                                                      // bytes; absent: not known
}

// EBPFCounters are running totals since the tables were made.
type EBPFCounters struct {
	Other    map[string]Count                          `json:"other"`    // by reason: packets of no service, or of one that is gone
	Reasons  map[string]map[string]Count               `json:"reasons"`  // by service and reason; those that happened
	Backends map[string]map[string]EBPFBackendCounters `json:"backends"` // by service and backend; (removed) sums former ones
	// Decapsulated are packets whose tunnel ended here, by kind of tunnel: ipip, gue; bytes are those of frames, tunnel included. Absent: none.
	Decapsulated map[string]Count `json:"decapsulated,omitempty"`
	// FlowsEvicted counts live flows that had not proven themselves and made room in a full table for new ones.
	FlowsEvicted uint64 `json:"flows_evicted"`
	// FlowsDisplaced counts proven flows that made room for packets whose connection id names a live owner.
	FlowsDisplaced uint64 `json:"flows_displaced"`
}

// EBPFBackendCounters are the totals of one backend.
type EBPFBackendCounters struct {
	In     Count  `json:"in"`           // to the backend
	Out    Count  `json:"out"`          // from the backend; 0 where the data path does not see that, which is outside mode nat
	Opened uint64 `json:"opened_flows"` // flows that it was given
}

// Count is a number of packets and their bytes: from the IP header on, unless the field that has it says otherwise.
type Count struct {
	Packets uint64 `json:"packets" metric:"_packets_total" help:"Packets"`      // a running total
	Bytes   uint64 `json:"bytes" metric:"_bytes_total" help:"Bytes of packets"` // of those
}

// EBPFStopped is the output of `weir lb stop --json`: what was removed. null: nothing was kept at the pin path.
type EBPFStopped struct {
	PinPath    string   `json:"pin_path"`                // directory of the pins
	Ended      int      `json:"ended_process,omitempty"` // process id of the weir that served it; absent: none did
	Links      []string `json:"links"`                   // attachments that were detached
	Maps       int      `json:"maps"`                    // tables that were removed
	Neighbours int      `json:"neighbours"`              // managed neighbour entries given back to the kernel
	Offloads   int      `json:"offloads"`                // interfaces whose GRO is off again
}

// DecapStatus is the answer of GET /status of `weir lb decap`, and what the command prints at its end with --json.
type DecapStatus struct {
	Interface string           `json:"interface"`                                                                                                                            // with the program
	Hook      string           `json:"hook"`                                                                                                                                 // xdp or tcx
	From      []netip.Prefix   `json:"from"`                                                                                                                                 // outer sources whose tunnels are opened
	Seconds   float64          `json:"seconds"`                                                                                                                              // since the start
	Counters  map[string]Count `json:"counters" metric:"weir_decap" key:"outcome" help:"on the tunnel, by what became of them; bytes are those of frames, tunnel included."` // frames and their bytes, tunnel included, by outcome: ipip, gue, refused, ...
	Error     string           `json:"error,omitempty"`                                                                                                                      // why counters are missing; absent: they are not
}
