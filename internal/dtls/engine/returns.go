package engine

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
)

// returnSlots is the number of client addresses that are remembered. If two clients share a slot, the newer one stays.
const returnSlots = 1 << 14

// returns remembers, for a wildcard socket, to which of our addresses a client has sent a foreign datagram. The answer comes
// back through the link on any worker, and its frame does not contain that address. All workers share the table.
type returns struct {
	seed  maphash.Seed
	slots [returnSlots]atomic.Pointer[returnAddress]
}

type returnAddress struct {
	client netip.AddrPort
	local  netip.Addr
}

func newReturns() *returns { return &returns{seed: maphash.MakeSeed()} }

func (r *returns) slot(client netip.AddrPort) *atomic.Pointer[returnAddress] {
	return &r.slots[maphash.Comparable(r.seed, client)%returnSlots]
}

// note records the address for every foreign datagram; it allocates only when the address has changed.
func (r *returns) note(client netip.AddrPort, local netip.Addr) {
	if r == nil || !local.IsValid() {
		return
	}
	slot := r.slot(client)
	if a := slot.Load(); a == nil || a.client != client || a.local != local {
		slot.Store(&returnAddress{client, local})
	}
}

// local returns the address from which to answer client; invalid: unknown, so the kernel chooses.
func (r *returns) local(client netip.AddrPort) netip.Addr {
	if r != nil {
		if a := r.slot(client).Load(); a != nil && a.client == client {
			return a.local
		}
	}
	return netip.Addr{}
}
