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
	Scenarios []Scenario `yaml:"scenarios"`
}

// Scenario is one path and what is asked of it. Zero values mean the defaults of WithDefaults.
type Scenario struct {
	Name           string      `yaml:"name"`
	Table          string      `yaml:"table"`           // heading that scenarios share
	Note           string      `yaml:"note"`            // why the cell reads as it does
	Nodes          int         `yaml:"nodes"`           // client nodes, 1 by default
	MaxNodes       int         `yaml:"max_nodes"`       // an autoscaler's limit; 0: nodes
	SurgeNodes     int         `yaml:"surge_nodes"`     // extra nodes during an upgrade
	Replicas       int         `yaml:"replicas"`        // client processes in all, 1 by default
	Connections    int64       `yaml:"connections"`     // that each replica wants, 10,000 by default
	Protocol       Protocol    `yaml:"protocol"`        // tcp by default
	Destinations   int         `yaml:"destinations"`    // destination tuples (address, port) dialled, 1 by default
	DestinationIPs int         `yaml:"destination_ips"` // addresses that these tuples have, one each by default
	ServerNodes    int         `yaml:"server_nodes"`    // 1 by default
	Servers        int         `yaml:"servers"`         // server processes in all, 1 by default
	Path           []StageSpec `yaml:"path"`
	Traffic        Traffic     `yaml:"traffic"`

	Expect      *int64   `yaml:"expect"`       // what somebody measured; none: an open cell
	ExpectNodes *int64   `yaml:"expect_nodes"` // nodes possible, as somebody reckoned
	Tolerance   float64  `yaml:"tolerance"`    // share of expect, 0.05 is 5 %
	Kind        CellKind `yaml:"kind"`         // how expect is to be read, exact by default
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
	Kind Kind   `yaml:"kind"`
	Side string `yaml:"side"` // client (default) or server; of files, conntrack, vm-flows, memory

	IPs                 int            `yaml:"ips"`                  // public addresses, of aws-regional in each zone; of ephemeral: source addresses
	Zones               int            `yaml:"zones"`                // aws-regional: Availability Zones that the nodes are spread over evenly
	Ports               int            `yaml:"ports"`                // per node of azure-lb and gcp-nat; range size of ephemeral and masquerade
	MaxPorts            int            `yaml:"max_ports"`            // gcp-nat: dynamic allocation up to this
	EndpointIndependent bool           `yaml:"endpoint_independent"` // gcp-nat: a port serves one source whatever the destination
	RulePorts           []int          `yaml:"rule_ports"`           // azure-lb: ports of balancing and inbound NAT rules on the outbound frontend
	Limit               int64          `yaml:"limit"`                // entries, descriptors or bytes
	PerConnection       int64          `yaml:"bytes_per_connection"` // memory
	Pause               time.Duration  `yaml:"accept_pause"`         // accept-queue: longest time between two accepts
	HoldFIN             *time.Duration `yaml:"hold_fin"`             // before a port serves the same destination again
	HoldRST             *time.Duration `yaml:"hold_rst"`
	Idle                *time.Duration `yaml:"idle_timeout"`
	Grow                time.Duration  `yaml:"grow_delay"` // gcp-nat dynamic: from need to more ports
}

// Policy is how clients behave.
type Policy string

// The policies.
const (
	Keep     Policy = "keep"     // every replica keeps its connections, reconnects what it lost
	Open     Policy = "open"     // connections arrive at a rate, whoever is served
	Original Policy = "original" // the original tester: blocking connects, heartbeats afterwards, dies on a write error
)

// Traffic is how connections come and go. The zero value keeps connections for ever.
type Traffic struct {
	Policy     Policy        `yaml:"policy"`      // keep by default
	Duration   time.Duration `yaml:"duration"`    // virtual time, 5m by default
	Rate       float64       `yaml:"rate"`        // new connections per second: open in all, keep and original per replica
	Burst      int           `yaml:"burst"`       // open: this many at one moment …
	BurstEvery time.Duration `yaml:"burst_every"` // … this often
	Lifetime   time.Duration `yaml:"lifetime"`    // 0: open none at all, keep for ever
	Spread     string        `yaml:"spread"`      // of lifetimes: exponential (default) or fixed
	RST        float64       `yaml:"rst"`         // share of connections closed by RST
	Abandoned  float64       `yaml:"abandoned"`   // share that nobody closes: the idle timer must
	Heartbeat  time.Duration `yaml:"heartbeat"`   // original: the client's INTERVAL, 15s by default
	Validate   time.Duration `yaml:"validate"`    // original: the server's INTERVAL, 45s by default
	Balance    string        `yaml:"balance"`     // over server nodes and servers: even (default) or random, as a hash does
	Seed       uint64        `yaml:"seed"`        // 1 by default
}
