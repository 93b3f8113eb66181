package routes

import (
	"net/netip"
	"time"
)

// Bounds of a Spec and of what a Router learns.
const (
	MaxEndpoints = 65536 // of all clusters together
	MaxNames     = 1024  // distinct names of all clusters together
	MaxAddresses = 256   // per name; the look-up's lowest are kept
)

// Spec is what Compile takes: clusters, and which of them each listener may reach.
type Spec struct {
	Clusters  []Cluster
	Listeners []Listener
	Own       []netip.Addr // refused as the host's own, beside what the kernel says: public addresses before a NAT
}

// Cluster is a set of peers. ID is what Admit answers.
type Cluster struct {
	ID        uint16
	Name      string
	TCP       bool // peers over TCP (RFC 6062), else UDP
	Endpoints []Endpoint
	Refresh   time.Duration // between look-ups of its names; 0: DefaultRefresh
}

// Listener is a listener's way to clusters, by name; the order decides between equal prefixes.
type Listener struct {
	ID     uint16
	Routes []string
}

// Endpoint is one set of peers: either a prefix or a name, and a port range.
type Endpoint struct {
	Prefix           netip.Prefix // masked; the zero Prefix if Name is set
	Name             string
	MinPort, MaxPort uint16 // both 0: any port
}

// Resolved are the addresses that names stood for when they were looked up last.
type Resolved map[string][]netip.Addr
