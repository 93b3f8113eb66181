package maps

import (
	"fmt"
	"net/netip"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Identity is what makes a backend the same backend in two snapshots; the same
// as in package steer. A slot belongs to one identity at a time.
type Identity struct {
	Service, Backend   string
	mode               lb.Mode
	mark               uint32
	address4, address6 netip.Addr
	port               uint16
}

func IdentityOf(b *lb.Backend) Identity {
	return Identity{b.Service.Name, b.Name, b.Service.Mode, b.Mark, b.Address4, b.Address6, b.Port}
}

// Numbers hands out small numbers to keys and takes the longest unused first,
// so that a number returns as late as possible.
type Numbers[K comparable] struct {
	what  string
	next  uint16
	limit uint16
	free  []uint16
	Of    map[K]uint16
}

func NewNumbers[K comparable](what string, first, limit uint16) *Numbers[K] {
	return &Numbers[K]{what: what, next: first, limit: limit, Of: map[K]uint16{}}
}

// Take returns the number of k, and whether it is new.
func (n *Numbers[K]) Take(k K) (number uint16, fresh bool, err error) {
	if number, ok := n.Of[k]; ok {
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
	n.Of[k] = number
	return number, true, nil
}

// Give returns the number of k.
func (n *Numbers[K]) Give(k K) {
	if number, ok := n.Of[k]; ok {
		delete(n.Of, k)
		n.free = append(n.free, number)
	}
}

// Restore gives a key a number it had, which the caller knows to belong to no other key.
func (n *Numbers[K]) Restore(k K, number uint16) bool {
	if _, ok := n.Of[k]; ok || number >= n.limit {
		return false
	}
	n.Of[k] = number
	n.next = max(n.next, number+1)
	return true
}

// Refill makes every number below next that no one has a free one.
func (n *Numbers[K]) Refill(first uint16) {
	taken := make(map[uint16]bool, len(n.Of))
	for _, number := range n.Of {
		taken[number] = true
	}
	for i := first; i < n.next; i++ {
		if !taken[i] {
			n.free = append(n.free, i)
		}
	}
}
