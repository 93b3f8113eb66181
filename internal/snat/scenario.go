package snat

import "time"

// Kind names what a stage is.
type Kind string

// The kinds of stages, from the client process to the server process.
const (
	Files        Kind = "files"         // descriptors of one process
	Ephemeral    Kind = "ephemeral"     // local port range of a replica's address
	Masquerade   Kind = "masquerade"    // the client node hides its replicas behind its own address
	Conntrack    Kind = "conntrack"     // connection tracking entries of a node
	VMFlows      Kind = "vm-flows"      // flow limit of a virtual machine
	AzureLB      Kind = "azure-lb"      // Azure Load Balancer, outbound rule; ports 0: default allocation
	AzureNAT     Kind = "azure-nat"     // Azure NAT gateway
	AWSNAT       Kind = "aws-nat"       // AWS NAT gateway, of one Availability Zone
	AWSRegional  Kind = "aws-regional"  // AWS regional NAT gateway: addresses in each Availability Zone
	GCPNAT       Kind = "gcp-nat"       // GCP Cloud NAT; max_ports above 0: dynamic allocation
	DNATLB       Kind = "dnat-lb"       // a balancer that rewrites destinations only, or returns directly
	MasqueradeLB Kind = "masquerade-lb" // the server node hides clients behind its own address (kube-proxy, policy Cluster)
	Memory       Kind = "memory"        // kernel memory of a node
	AcceptQueue  Kind = "accept-queue"  // connections not yet accepted
)

// File is a table of scenarios, as `weir snat plan -c` reads it.
type File struct {
	Scenarios []Scenario `yaml:"scenarios" bounds:"1 to 1000 scenarios"` // cells to plan and to simulate
}

// Scenario is one path and what is asked of it. Zero values mean the defaults of WithDefaults.
type Scenario struct {
	Name           string      `yaml:"name"`                                               // name of the cell
	Table          string      `yaml:"table" default:"none"`                               // heading that scenarios share
	Note           string      `yaml:"note" default:"none"`                                // why the figure is what it is
	Nodes          int         `yaml:"nodes" default:"1" range:"1 to 100000"`              // client nodes
	MaxNodes       int         `yaml:"max_nodes" default:"nodes"`                          // limit of the autoscaler, for warnings
	SurgeNodes     int         `yaml:"surge_nodes" default:"0"`                            // extra nodes during an upgrade, for warnings
	Replicas       int         `yaml:"replicas" default:"1" range:"1 to 1000000"`          // client processes in all, spread evenly
	Connections    int64       `yaml:"connections" default:"10000" range:"1 to 100000000"` // that each replica wants
	Protocol       Protocol    `yaml:"protocol" default:"tcp" values:"tcp, udp"`           // transport protocol
	Destinations   int         `yaml:"destinations" default:"1" range:"1 to 10000"`        // destination tuples (address and port) that are dialled
	DestinationIPs int         `yaml:"destination_ips" default:"destinations"`             // addresses that these tuples have
	ServerNodes    int         `yaml:"server_nodes" default:"1"`                           // machines behind the balancer
	Servers        int         `yaml:"servers" default:"1"`                                // server processes in all
	Path           []StageSpec `yaml:"path" bounds:"at most 16 stages"`                    // the stages, from the client on
	Traffic        Traffic     `yaml:"traffic"`                                            // how connections open and close

	Expect      *int64   `yaml:"expect" default:"none"`                                   // what was measured; none: an open cell, to be predicted
	ExpectNodes *int64   `yaml:"expect_nodes" default:"none"`                             // nodes possible, as the source computed
	Tolerance   float64  `yaml:"tolerance" default:"0"`                                   // share of expect by which it may differ; 0.05 is 5 %
	Kind        CellKind `yaml:"kind" default:"exact" values:"exact, ceiling, transient"` // how expect is to be read
}

// Protocol is what the connections are. A UDP flow ends in silence: an idle timer frees its ports.
type Protocol string

// The protocols.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// CellKind is how a measured figure relates to the plan.
type CellKind string

// The kinds of cells.
const (
	Exact     CellKind = "exact"     // the plan holds just that many
	Ceiling   CellKind = "ceiling"   // whole replicas stop there
	Transient CellKind = "transient" // a snapshot of something that moves below the plan's ceiling
)

// StageSpec is one stage as users write it. Zero values mean the vendor's default.
type StageSpec struct {
	// Kind: which stage; each has keys of its own.
	Kind Kind   `yaml:"kind"`
	Side string `yaml:"side" default:"client" values:"client, server"` // of files, conntrack, vm-flows and memory

	// IPs: public addresses, of aws-regional in each zone; of ephemeral: source addresses.
	IPs   int `yaml:"ips" default:"1" range:"1 to 1024"`
	Zones int `yaml:"zones" default:"1" range:"1 to 16"` // aws-regional: Availability Zones that the nodes are spread over evenly
	// Ports: per node of azure-lb and gcp-nat; size of the range of ephemeral and masquerade.
	Ports               int  `yaml:"ports" default:"the vendor's"`
	MaxPorts            int  `yaml:"max_ports" default:"none"`             // gcp-nat: dynamic allocation up to this
	EndpointIndependent bool `yaml:"endpoint_independent" default:"false"` // gcp-nat: a port serves one source whatever the destination
	// RulePorts: azure-lb: ports of balancing and inbound NAT rules on the outbound address.
	RulePorts     []int          `yaml:"rule_ports" default:"none"`
	Limit         int64          `yaml:"limit" default:"the system's"`        // entries, descriptors or bytes
	PerConnection int64          `yaml:"bytes_per_connection" default:"3800"` // memory of a connection
	Pause         time.Duration  `yaml:"accept_pause" default:"1s"`           // accept-queue: longest time between two accepts
	HoldFIN       *time.Duration `yaml:"hold_fin" default:"the vendor's"`     // time after a FIN before a port serves the same destination again
	HoldRST       *time.Duration `yaml:"hold_rst" default:"the vendor's"`     // the same after an RST
	Idle          *time.Duration `yaml:"idle_timeout" default:"the vendor's"` // time without packets until a port is free
	Grow          time.Duration  `yaml:"grow_delay" default:"1s"`             // gcp-nat with dynamic allocation: from need to more ports
}

// Policy is how clients behave.
type Policy string

// The policies.
const (
	Keep     Policy = "keep"     // every replica keeps its connections, reconnects what it lost
	Open     Policy = "open"     // connections arrive at a rate, whoever is served
	Original Policy = "original" // the original tester: blocking connects, heartbeats afterwards, ends on a write error
)

// Traffic is how connections come and go. The zero value keeps connections for ever.
type Traffic struct {
	Policy     Policy        `yaml:"policy" default:"keep" values:"keep, open, original"`      // what clients do
	Duration   time.Duration `yaml:"duration" default:"5m"`                                    // virtual time
	Rate       float64       `yaml:"rate" default:"1000"`                                      // new connections per second: of open in all, otherwise of each replica
	Burst      int           `yaml:"burst" default:"0"`                                        // open: so many more at one moment
	BurstEvery time.Duration `yaml:"burst_every" default:"none"`                               // open: time between two bursts
	Lifetime   time.Duration `yaml:"lifetime" default:"0"`                                     // mean lifetime; 0: for ever
	Spread     string        `yaml:"spread" default:"exponential" values:"exponential, fixed"` // of lifetimes
	RST        float64       `yaml:"rst" default:"0"`                                          // share of connections closed by RST
	Abandoned  float64       `yaml:"abandoned" default:"0"`                                    // share of connections that neither side closes: the idle timer must
	Heartbeat  time.Duration `yaml:"heartbeat" default:"15s"`                                  // original: INTERVAL of the client
	Validate   time.Duration `yaml:"validate" default:"45s"`                                   // original: INTERVAL of the server
	Balance    string        `yaml:"balance" default:"even" values:"even, random"`             // of connections over server nodes and servers; random as a hash does
	Seed       uint64        `yaml:"seed" default:"1"`                                         // the same seed gives the same result
}
