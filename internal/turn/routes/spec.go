package routes

import (
	"net/netip"
	"time"
)

// Limits of a Spec and of the answers to a Router.
const (
	MaxEndpoints = 65536 // of all clusters together
	MaxNames     = 1024  // distinct names of all clusters together
	MaxAddresses = 256   // per name; the lowest of an answer are used
)

// Spec is what Compile takes: clusters, and which of them each listener may reach.
type Spec struct {
	Clusters  []Cluster
	Listeners []Listener
	Own       []netip.Addr // refused like the host's own addresses: public addresses of a NAT in front of the host
}

// Cluster is a set of peers. ID is the result of Admit.
type Cluster struct {
	ID        uint16
	Name      string
	TCP       bool // peers over TCP (RFC 6062), else UDP
	Endpoints []Endpoint
	Refresh   time.Duration // between look-ups of its names; 0: DefaultRefresh
}

// Listener is the clusters that a listener may reach, by name; their order decides between equal prefixes.
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

// Resolved are the addresses of names from the last look-up.
type Resolved map[string][]netip.Addr
