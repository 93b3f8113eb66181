package engine

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
)

// returnSlots is how many clients' addresses are remembered; of two that share a
// slot the newer one stays.
const returnSlots = 1 << 14

// returns remembers, on a wildcard socket, which of our addresses a client has
// sent a foreign datagram to: the answer comes back through the link, on any
// worker, and the frame does not say. All workers share it.
type returns struct {
	seed  maphash.Seed
	slots [returnSlots]atomic.Pointer[asked]
}

type asked struct {
	client netip.AddrPort
	local  netip.Addr
}

func newReturns() *returns { return &returns{seed: maphash.MakeSeed()} }

func (r *returns) slot(client netip.AddrPort) *atomic.Pointer[asked] {
	return &r.slots[maphash.Comparable(r.seed, client)%returnSlots]
}

// note is called for every foreign datagram; it allocates only when something
// has changed.
func (r *returns) note(client netip.AddrPort, local netip.Addr) {
	if r == nil || !local.IsValid() {
		return
	}
	slot := r.slot(client)
	if a := slot.Load(); a == nil || a.client != client || a.local != local {
		slot.Store(&asked{client, local})
	}
}

// local is the address to answer client from; invalid: not known, the kernel chooses.
func (r *returns) local(client netip.AddrPort) netip.Addr {
	if r != nil {
		if a := r.slot(client).Load(); a != nil && a.client == client {
			return a.local
		}
	}
	return netip.Addr{}
}
