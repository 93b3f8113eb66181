package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/coap/cluster/membership"
	"github.com/weir-lb/weir/internal/keyerror"
)

// MaxNodes bounds the membership; the seed's layout has one byte of node id.
const MaxNodes = 256

// Foreign replaces a node's DTLS address when the node is another process.
const Foreign = "---"

// Node is one member as the user writes it.
type Node struct {
	ID         uint32 `yaml:"id" range:"0 to 255"`              // node id in connection ids
	DTLS       string `yaml:"dtls" bounds:"HOST:PORT or :PORT"` // public address; --- for a node of another process
	Management string `yaml:"management" bounds:"HOST:PORT"`    // address for the other nodes
}

// Own reports whether this process runs the node.
func (n Node) Own() bool { return n.DTLS != Foreign && n.DTLS != "" }

// Config is the cluster part of a node's configuration.
type Config struct {
	Nodes []Node   `yaml:"nodes" bounds:"1 to 256 nodes"`                     // own nodes and the others
	Group []string `yaml:"group,omitempty" default:"none" bounds:"HOST:PORT"` // management addresses at which further nodes are searched for
	// Security: DTLS with a pre-shared key between the nodes. Without it nodes are told apart by their addresses alone.
	Security *Security `yaml:"security,omitempty" default:"none"`
	MAC      *bool     `yaml:"mac,omitempty" default:"true with security"` // a code authenticates forwarded datagrams
	Backward *bool     `yaml:"backward,omitempty" default:"true"`          // replies return through the node that the request came through
	// Replicate: sessions are copied to another node, which goes on with them when this one crashes.
	Replicate *Replicate `yaml:"replicate,omitempty" default:"none"`
	// AcceptStrangers: take frames from any address, as Californium without security does. It makes the public port an open
	// reflector: only for tests against such clusters.
	AcceptStrangers bool `yaml:"accept_strangers,omitempty" default:"false"`
	// Discovered: the management addresses of further nodes come with [Cluster.SetGroup], not from Group.
	Discovered bool `yaml:"-"`
}

// Security is the pre-shared key of the link between nodes.
type Security struct {
	Identity string `yaml:"identity,omitempty" default:"dtls-mgmt"` // the same on all nodes
	File     string `yaml:"file"`                                   // file of the secret in base64, or behind :0x in hexadecimal digits; the same on all nodes
	Secret   []byte `yaml:"-"`                                      // that of File
}

// DefaultIdentity is what Californium's nodes use with a secret of the command line.
const DefaultIdentity = "dtls-mgmt"

func (s *Security) identity() string {
	if s.Identity == "" {
		return DefaultIdentity
	}
	return s.Identity
}

// Open reports whether nodes may come from addresses that are not listed: if they have to know a secret, and not all are listed by id.
func (c *Config) Open() bool {
	return c.Security != nil && (len(c.Group) > 0 || len(c.Own()) == len(c.Nodes))
}

// UsesMAC reports whether a code authenticates frames, the default with Security.
func (c *Config) UsesMAC() bool { return c.Security != nil && (c.MAC == nil || *c.MAC) }

// ParseNodes reads the source document's notation, "dtls;management;id[,...]", for example
// ":15784;localhost:15884;1,---;localhost:25884;2". A "---" in place of dtls is a node of another process.
func ParseNodes(s string) ([]Node, error) {
	var nodes []Node
	for i, part := range strings.Split(s, ",") {
		fields := strings.Split(strings.TrimSpace(part), ";")
		if len(fields) != 3 {
			return nil, fmt.Errorf("cluster node %d %q: want DTLS-ADDRESS;MANAGEMENT-ADDRESS;ID, for example :15784;localhost:15884;1", i+1, part)
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("cluster node %d: node id %q is no number", i+1, fields[2])
		}
		nodes = append(nodes, Node{ID: uint32(id), DTLS: fields[0], Management: fields[1]})
	}
	return nodes, validateNodes(nodes)
}

// Validate reports contradictions, each with the key it is found at.
func (c *Config) Validate() error {
	var wrong keyerror.List
	wrong.Add(validateNodes(c.Nodes))
	wrong.Add(c.validateLink())
	wrong.Add(c.validateReplicate())
	return wrong.Err()
}

func validateNodes(nodes []Node) error {
	if len(nodes) == 0 {
		return keyerror.Errorf("nodes", "empty; name at least this node")
	}
	if len(nodes) > MaxNodes {
		return keyerror.Errorf("nodes", "%d nodes, at most %d", len(nodes), MaxNodes)
	}
	var wrong keyerror.List
	own, byID, byAddr := 0, map[uint32]int{}, map[string]int{}
	for i, n := range nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		wrong.If(n.ID > 255, at+".id", "%d does not fit the one byte of node id in the connection id; use 0 to 255", n.ID)
		j, taken := byID[n.ID]
		wrong.If(taken, at+".id", "%d is taken by nodes[%d]; ids must differ", n.ID, j)
		byID[n.ID] = i
		err := checkHostPort(n.Management)
		wrong.Add(keyerror.At(at+".management", err))
		j, taken = byAddr[n.Management]
		wrong.If(taken, at+".management", "%s is taken by nodes[%d]; each node needs its own", n.Management, j)
		byAddr[n.Management] = i
		if !n.Own() {
			host, _, _ := net.SplitHostPort(n.Management)
			wrong.If(err == nil && host == "", at+".management", "%q names no host, so frames cannot be sent there; write HOST:PORT", n.Management)
			continue
		}
		own++
		wrong.Add(keyerror.At(at+".dtls", checkHostPort(n.DTLS)))
	}
	wrong.If(own == 0, "nodes", "all are %q; give the node of this process its DTLS address", Foreign)
	return wrong.Err()
}

// loopbackOnly reports whether the link of an own node is bound to loopback, because nothing secures it and no address is named.
func (c *Config) loopbackOnly(n Node) bool {
	host, _, _ := net.SplitHostPort(n.Management)
	return n.Own() && host == "" && c.Security == nil
}

// notReached is the error of a node that is bound to loopback while another one is elsewhere. is: "OTHER is", or "OTHERS are".
func notReached(i int, n Node, is string) error {
	return keyerror.Errorf(fmt.Sprintf("nodes[%d].management", i),
		"%q is bound to loopback, because the link is not secured, and %s not there; set security (--dtls-cluster-group-security), or name the address to bind, such as 0.0.0.0%s",
		n.Management, is, n.Management)
}

// validateBind finds nodes that are bound to loopback while another one is elsewhere, as far as that can be known without resolving names.
func (c *Config) validateBind() error {
	others := slices.Clone(c.Group)
	for _, n := range c.Nodes {
		others = append(others, n.Management)
	}
	for i, n := range c.Nodes {
		if c.Discovered && c.loopbackOnly(n) {
			return notReached(i, n, "other nodes are")
		}
		for _, other := range others {
			host, _, _ := net.SplitHostPort(other)
			if address, err := netip.ParseAddr(host); err == nil && c.loopbackOnly(n) && !address.IsLoopback() && !address.IsUnspecified() {
				return notReached(i, n, other+" is")
			}
		}
	}
	return nil
}

// validateLink checks how nodes find each other and what secures the link.
func (c *Config) validateLink() error {
	if len(c.Group) > membership.MaxGroup {
		return keyerror.Errorf("group", "%d addresses, at most %d", len(c.Group), membership.MaxGroup)
	}
	var wrong keyerror.List
	for i, address := range c.Group {
		at := fmt.Sprintf("group[%d]", i)
		err := checkHostPort(address)
		wrong.Add(keyerror.At(at, err))
		host, _, _ := net.SplitHostPort(address)
		wrong.If(err == nil && host == "", at, "%q names no host; write HOST:PORT", address)
	}
	s := c.Security
	wrong.If(s != nil && s.File == "" && len(s.Secret) == 0, "security.file", "without a file there is no secret; make one with: head -c 16 /dev/urandom | base64")
	wrong.If(s == nil && c.MAC != nil && *c.MAC, "mac", "the code needs the keys of a secured link; set security (--dtls-cluster-group-security)")
	wrong.If(s != nil && c.AcceptStrangers, "accept_strangers", "it and security exclude each other; remove one")
	wrong.Add(c.validateBind())
	return wrong.Err()
}

// Own returns the nodes this process runs, in the order written.
func (c *Config) Own() []Node {
	var own []Node
	for _, n := range c.Nodes {
		if n.Own() {
			own = append(own, n)
		}
	}
	return own
}

// SendsBackward reports whether replies return through the router, the default.
func (c *Config) SendsBackward() bool { return c.Backward == nil || *c.Backward }

func checkHostPort(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is no address; write HOST:PORT or :PORT", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q: port must be 1 to 65535", s)
	}
	return nil
}

// portOf returns the port of an address that checkHostPort has accepted.
func portOf(s string) uint16 {
	_, port, _ := net.SplitHostPort(s)
	n, _ := strconv.ParseUint(port, 10, 16)
	return uint16(n)
}
