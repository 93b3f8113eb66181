package ebpf

import (
	"fmt"
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// identity is what makes a backend the same backend in two snapshots; the same
// as in package steer. A slot belongs to one identity at a time.
type identity struct {
	service, backend   string
	mode               lb.Mode
	mark               uint32
	address4, address6 netip.Addr
	port               uint16
}

func identityOf(b *lb.Backend) identity {
	return identity{b.Service.Name, b.Name, b.Service.Mode, b.Mark, b.Address4, b.Address6, b.Port}
}

// numbers hands out small numbers to keys and takes the longest unused first,
// so that a number returns as late as possible.
type numbers[K comparable] struct {
	what  string
	next  uint16
	limit uint16
	free  []uint16
	of    map[K]uint16
}

func newNumbers[K comparable](what string, first, limit uint16) *numbers[K] {
	return &numbers[K]{what: what, next: first, limit: limit, of: map[K]uint16{}}
}

// take returns the number of k, and whether it is new.
func (n *numbers[K]) take(k K) (number uint16, fresh bool, err error) {
	if number, ok := n.of[k]; ok {
		return number, false, nil
	}
	switch {
	case n.next < n.limit:
		number = n.next
		n.next++
	case len(n.free) > 0:
		number = n.free[0]
		n.free = n.free[1:]
	default:
		return 0, false, fmt.Errorf("more than %d %s", n.limit, n.what)
	}
	n.of[k] = number
	return number, true, nil
}

// give returns the number of k.
func (n *numbers[K]) give(k K) {
	if number, ok := n.of[k]; ok {
		delete(n.of, k)
		n.free = append(n.free, number)
	}
}
