package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
)

// Topology is a whole network as a value. The zero values of its parts mean "the kernel's default".
type Topology struct {
	Name       string // lower-case letters, digits and dashes, at most 24
	Namespaces []Namespace
	Links      []Link
}

// Namespace is one network namespace: a host, a router or a switch. Its loopback is up.
type Namespace struct {
	Name       string         // as Topology.Name
	Loopback   []netip.Prefix // extra addresses of lo, such as the VIP of a DSR backend
	Forward    bool           // routes IPv4 and IPv6
	Bridges    []Bridge
	Macvlans   []Macvlan
	Routes     []Route
	Rules      []Rule
	Neighbours []Neighbour
	Sysctls    []Sysctl // written last, when every link exists
}

// Link is a veth pair.
type Link struct {
	A, B   End
	MTU    int // bytes, both ends; 0 = 1500
	Queues int // receive and transmit queues of both ends; 0 = the kernel's default
}

// End is one end of a Link.
type End struct {
	Namespace string
	Name      string           // interface name, at most 15 bytes
	Addresses []netip.Prefix   // address with its on-link prefix length
	MAC       net.HardwareAddr // nil = random
	Bridge    string           // bridge of the same namespace that this end is a port of
}

// Bridge is a learning switch without spanning tree.
type Bridge struct {
	Name      string
	Addresses []netip.Prefix
	MTU       int
	MAC       net.HardwareAddr
}

// Macvlan is a second interface, with a MAC of its own, on the wire of Parent (in bridge mode).
type Macvlan struct {
	Name      string
	Parent    string // interface of the same namespace
	Addresses []netip.Prefix
	MAC       net.HardwareAddr
}

// Route sends To through Via, or onto the link Dev when Via is zero.
type Route struct {
	To     netip.Prefix // 0.0.0.0/0 or ::/0 is the default route
	Via    netip.Addr   // gateway
	Spread []netip.Addr // instead of Via: gateways that share the flows evenly
	Dev    string       // interface; may be empty when Via is on a link
	Source netip.Addr   // preferred source address
	Table  int          // routing table; 0 = main
	Local  bool         // To is delivered to this namespace (a VIP prefix on a proxy)
}

// Rule looks up Table for packets that carry Mark, or come from or to a prefix.
type Rule struct {
	IPv6     bool
	Mark     uint32
	From, To netip.Prefix
	Table    int
	Priority int // 0 = the kernel chooses
}

// Neighbour is a permanent entry of the neighbour table.
type Neighbour struct {
	Dev     string
	Address netip.Addr
	MAC     net.HardwareAddr
}

// Sysctl is one key under net, such as "net.ipv4.conf.all.rp_filter". A dot inside an interface name is a slash here.
type Sysctl struct{ Key, Value string }

// Prefixes parses addresses with prefix lengths and panics on a bad one: for values written in source code.
func Prefixes(texts ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	return prefixes
}

// Cable is a link between two ends, each written as NAMESPACE INTERFACE ADDRESS/BITS…. It panics on a bad one: for links written in
// source code.
func Cable(a, b string) Link { return Link{A: endOf(a), B: endOf(b)} }

func endOf(text string) End {
	words := strings.Fields(text)
	return End{Namespace: words[0], Name: words[1], Addresses: Prefixes(words[2:]...)}
}

// Via is a route to a prefix by a gateway. It panics on a bad one: for routes written in source code.
func Via(to, gateway string) Route {
	return Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(gateway)}
}

// Default is the default routes by gateways, one of a family. It panics on a bad address: for routes written in source code.
func Default(gateways ...string) (routes []Route) {
	for _, gateway := range gateways {
		to := "::/0"
		if netip.MustParseAddr(gateway).Is4() {
			to = "0.0.0.0/0"
		}
		routes = append(routes, Via(to, gateway))
	}
	return routes
}

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,23}$`)

// Validate reports everything in t that cannot be built, each with its path.
func (t Topology) Validate() error {
	v := validator{interfaces: map[[2]string]bool{}, bridges: map[[2]string]bool{}}
	v.check(nameRule.MatchString(t.Name), "name", "%q: want 1 to 24 lower-case letters, digits or dashes", t.Name)
	known := map[string]bool{}
	for i, ns := range t.Namespaces {
		path := fmt.Sprintf("namespaces[%d]", i)
		v.check(nameRule.MatchString(ns.Name), path+".name", "%q: want 1 to 24 lower-case letters, digits or dashes", ns.Name)
		v.check(!known[ns.Name], path+".name", "%q is used twice", ns.Name)
		known[ns.Name] = true
		v.interfaces[[2]string{ns.Name, "lo"}] = true
		for j, bridge := range ns.Bridges {
			v.device(fmt.Sprintf("%s.bridges[%d]", path, j), ns.Name, bridge.Name, bridge.Addresses)
			v.bridges[[2]string{ns.Name, bridge.Name}] = true
		}
	}
	for i, link := range t.Links {
		path := fmt.Sprintf("links[%d]", i)
		v.check(link.MTU == 0 || link.MTU >= 68 && link.MTU <= 65535, path+".mtu", "%d: want 68 to 65535", link.MTU)
		v.check(link.Queues >= 0 && link.Queues <= 256, path+".queues", "%d: want 0 to 256", link.Queues)
		v.end(path+".a", link.A, known)
		v.end(path+".b", link.B, known)
	}
	for i, ns := range t.Namespaces {
		v.namespace(fmt.Sprintf("namespaces[%d]", i), ns)
	}
	return errors.Join(v.errs...)
}

// validator collects errors; interfaces and bridges are keyed by (namespace, name).
type validator struct {
	errs                []error
	interfaces, bridges map[[2]string]bool
}

func (v *validator) check(ok bool, path, format string, args ...any) {
	if !ok {
		v.errs = append(v.errs, fmt.Errorf("%s: "+format, append([]any{path}, args...)...))
	}
}

func (v *validator) device(path, namespace, name string, addresses []netip.Prefix) {
	v.check(name != "" && len(name) <= 15, path+".name", "interface name %q: want 1 to 15 bytes", name)
	v.check(!v.interfaces[[2]string{namespace, name}], path+".name", "namespace %q has two interfaces %q", namespace, name)
	v.interfaces[[2]string{namespace, name}] = true
	for i, address := range addresses {
		v.check(address.IsValid(), fmt.Sprintf("%s.addresses[%d]", path, i), "not an address with a prefix length")
	}
}

func (v *validator) end(path string, end End, known map[string]bool) {
	v.check(known[end.Namespace], path+".namespace", "no namespace %q", end.Namespace)
	v.device(path, end.Namespace, end.Name, end.Addresses)
	if end.Bridge != "" {
		v.check(v.bridges[[2]string{end.Namespace, end.Bridge}], path+".bridge", "namespace %q has no bridge %q", end.Namespace, end.Bridge)
	}
}

func (v *validator) namespace(path string, ns Namespace) {
	has := func(dev string) bool { return v.interfaces[[2]string{ns.Name, dev}] }
	for i, macvlan := range ns.Macvlans {
		path := fmt.Sprintf("%s.macvlans[%d]", path, i)
		v.check(has(macvlan.Parent), path+".parent", "no interface %q", macvlan.Parent)
		v.device(path, ns.Name, macvlan.Name, macvlan.Addresses)
	}
	for i, prefix := range ns.Loopback {
		v.check(prefix.IsValid(), fmt.Sprintf("%s.loopback[%d]", path, i), "not an address with a prefix length")
	}
	for i, route := range ns.Routes {
		path := fmt.Sprintf("%s.routes[%d]", path, i)
		v.check(route.To.IsValid(), path+".to", "not a prefix")
		v.check(route.Via.IsValid() || route.Dev != "" || len(route.Spread) > 0, path, "wants via, spread or dev")
		v.check(route.Dev == "" || has(route.Dev), path+".dev", "no interface %q", route.Dev)
		v.check(!route.Via.IsValid() || route.Via.Is4() == route.To.Addr().Is4(), path+".via", "%v: another family than %v", route.Via, route.To)
	}
	for i, rule := range ns.Rules {
		v.check(rule.Table > 0, fmt.Sprintf("%s.rules[%d].table", path, i), "%d: want a table above 0", rule.Table)
	}
	for i, neighbour := range ns.Neighbours {
		path := fmt.Sprintf("%s.neighbours[%d]", path, i)
		v.check(has(neighbour.Dev), path+".dev", "no interface %q", neighbour.Dev)
		v.check(neighbour.Address.IsValid() && len(neighbour.MAC) == 6, path, "wants an address and a MAC of 6 bytes")
	}
	for i, sysctl := range ns.Sysctls {
		v.check(sysctlRule.MatchString(sysctl.Key), fmt.Sprintf("%s.sysctls[%d].key", path, i), "%q: want a key under net.", sysctl.Key)
	}
}

// Only keys under net are per namespace; anything else would change the host.
var sysctlRule = regexp.MustCompile(`^net(\.[A-Za-z0-9_@/-]+)+$`)
