package routes

import "net/netip"

// Table is a compiled Spec. It never changes; any goroutine may use it.
type Table struct{}

// Compile builds the table of a Spec. Names that are not in resolved have no address; own are the host's addresses.
// It fails for a route to a cluster that does not exist and beyond the bounds of this package.
func Compile(spec *Spec, resolved Resolved, own []netip.Addr) (*Table, error) { return &Table{}, nil }

// Admit reports whether a client of the listener may reach the peer, and through which cluster. Port 0 asks for any
// port: a permission (RFC 8656 §9) knows none. It allocates nothing.
func (t *Table) Admit(listener uint16, tcp bool, peer netip.AddrPort) (cluster uint16, ok bool) {
	return 0, false
}
