package routes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Table is a compiled Spec. It never changes; any goroutine may use it.
type Table struct {
	views map[viewKey]*view
	own   map[netip.Addr]struct{}
}

// viewKey identifies a view: listeners with equal routes share one.
type viewKey struct {
	listener uint16
	tcp      bool
}

// view is what one list of routes can reach over one transport.
type view struct {
	lengths [2][]int // existing prefix lengths, longest first: IPv4, IPv6
	rules   map[netip.Prefix][]rule
}

// rule is one endpoint of a prefix. The rules of one prefix are in the order of precedence.
type rule struct {
	low, high uint16 // ports; 0 to 65535: any
	cluster   uint16
	byName    bool // the address of a name: it does not allow a refused range
}

// Compile builds the table of a Spec. Names that are not in resolved have no address; own are the host's addresses.
// It fails for a route to a cluster that does not exist, and beyond the limits of this package.
func Compile(spec *Spec, resolved Resolved, own []netip.Addr) (*Table, error) {
	clusters, err := indexClusters(spec)
	if err != nil {
		return nil, err
	}
	t := &Table{views: map[viewKey]*view{}, own: map[netip.Addr]struct{}{}}
	for _, a := range slices.Concat(own, spec.Own) {
		t.own[a.Unmap().WithZone("")] = struct{}{}
	}
	shared := map[string][2]*view{}
	for i := range spec.Listeners {
		l := &spec.Listeners[i]
		for _, route := range l.Routes {
			if clusters[route] == nil {
				return nil, fmt.Errorf("listener %d: no cluster %q", l.ID, route)
			}
		}
		key := strings.Join(l.Routes, "\x00")
		pair, ok := shared[key]
		if !ok {
			pair = [2]*view{newView(clusters, l.Routes, false, resolved), newView(clusters, l.Routes, true, resolved)}
			shared[key] = pair
		}
		t.views[viewKey{l.ID, false}], t.views[viewKey{l.ID, true}] = pair[0], pair[1]
	}
	return t, nil
}

// indexClusters indexes clusters by name and checks the limits of the Spec.
func indexClusters(spec *Spec) (map[string]*Cluster, error) {
	clusters, names, endpoints := map[string]*Cluster{}, map[string]bool{}, 0
	for i := range spec.Clusters {
		c := &spec.Clusters[i]
		if clusters[c.Name] != nil {
			return nil, fmt.Errorf("two clusters %q", c.Name)
		}
		clusters[c.Name] = c
		endpoints += len(c.Endpoints)
		for j := range c.Endpoints {
			if name := c.Endpoints[j].Name; name != "" {
				names[name] = true
			}
		}
	}
	switch {
	case endpoints > MaxEndpoints:
		return nil, fmt.Errorf("%d endpoints are more than %d", endpoints, MaxEndpoints)
	case len(names) > MaxNames:
		return nil, fmt.Errorf("%d names to look up are more than %d", len(names), MaxNames)
	}
	return clusters, nil
}

func newView(clusters map[string]*Cluster, routes []string, tcp bool, resolved Resolved) *view {
	v := &view{rules: map[netip.Prefix][]rule{}}
	for _, route := range routes { // in this order, so that the rules of one prefix are in the order of precedence
		c := clusters[route]
		if c.TCP != tcp {
			continue
		}
		for _, e := range c.Endpoints {
			if e.Name == "" {
				v.add(e.Prefix, e.rule(c.ID))
				continue
			}
			for _, a := range resolved[e.Name] {
				v.add(netip.PrefixFrom(a, a.BitLen()), e.rule(c.ID))
			}
		}
	}
	for _, lengths := range v.lengths {
		slices.SortFunc(lengths, func(a, b int) int { return cmp.Compare(b, a) })
	}
	return v
}

func (e Endpoint) rule(cluster uint16) rule {
	r := rule{low: e.MinPort, high: e.MaxPort, cluster: cluster, byName: e.Name != ""}
	if r.low == 0 {
		r.high = 65535
	}
	return r
}

func (v *view) add(prefix netip.Prefix, r rule) {
	if !slices.Contains(v.rules[prefix], r) {
		v.rules[prefix] = append(v.rules[prefix], r)
	}
	lengths := &v.lengths[family(prefix.Addr())]
	if !slices.Contains(*lengths, prefix.Bits()) {
		*lengths = append(*lengths, prefix.Bits())
	}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// Admit reports whether a client of the listener may reach the peer, and through which cluster. Port 0 stands for any
// port, because a permission (RFC 8656 §9) has none. It allocates nothing.
func (t *Table) Admit(listener uint16, tcp bool, peer netip.AddrPort) (cluster uint16, ok bool) {
	v := t.views[viewKey{listener, tcp}]
	if v == nil || !peer.IsValid() {
		return 0, false
	}
	address, port := peer.Addr(), peer.Port()
	if !address.Is4() {
		address = address.Unmap().WithZone("")
	}
	needed, refused := t.refused(address)
	for _, bits := range v.lengths[family(address)] {
		if bits < needed {
			return 0, false // shorter prefixes are not within the refused range
		}
		prefix, _ := address.Prefix(bits) // the lengths are valid for the family
		for _, r := range v.rules[prefix] {
			if refused && r.byName {
				continue
			}
			if port == 0 || port >= r.low && port <= r.high {
				return r.cluster, true
			}
		}
	}
	return 0, false
}

// refused reports whether an address is refused by default, as itself or as the IPv4 address that it may represent,
// and the minimum prefix length of an endpoint that allows it.
func (t *Table) refused(a netip.Addr) (bits int, refused bool) {
	bits = t.refusedRange(a)
	if a.Is6() && bits == 0 {
		embeddedIPv4(a, func(v4 netip.Addr, before int) {
			if inside := t.refusedRange(v4); inside > 0 {
				bits = max(bits, min(before+inside, 128))
			}
		})
	}
	return bits, bits > 0
}

// refusedRange returns the prefix length of the refused range that contains an address; 0 if none does.
func (t *Table) refusedRange(a netip.Addr) int {
	if bits := special(a); bits > 0 {
		return bits
	}
	if _, own := t.own[a]; own {
		return a.BitLen()
	}
	return 0
}

// special returns the prefix length of the always refused range that contains an address; 0 if none does. Link-local
// IPv4 contains the metadata services of most clouds (169.254.169.254, 169.254.170.2); those at other addresses are
// listed individually.
func special(a netip.Addr) int {
	if a.Is4() {
		b := a.As4()
		switch {
		case b[0] == 0, b[0] == 127:
			return 8
		case b[0] == 169 && b[1] == 254:
			return 16
		case b[0]&0xf0 == 224:
			return 4
		case b == [4]byte{255, 255, 255, 255},
			b == [4]byte{100, 100, 100, 200}, // Alibaba Cloud
			b == [4]byte{168, 63, 129, 16},   // Azure
			b == [4]byte{192, 0, 0, 192}:     // Oracle Cloud
			return 32
		}
		return 0
	}
	switch {
	case a.IsUnspecified(), a.IsLoopback():
		return 128
	case a.IsLinkLocalUnicast():
		return 10
	case a.IsMulticast():
		return 8
	}
	b := a.As16()
	switch {
	case prefixed(b, 0xfd00, 0x0ec2): // AWS: fd00:ec2::254 and others
		return 32
	case prefixed(b, 0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254): // Google Cloud
		return 128
	}
	return 0
}
