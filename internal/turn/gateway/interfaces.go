package gateway

import "net/netip"

// Store holds what outlives the process: sockets by name and the records of allocations. *handover.Store implements
// it. Workers call Hold, Drop, Put and Delete while they serve, so none of them may block for long.
type Store interface {
	// Hold stores a duplicate of fd under name. After an error the socket does not survive the process; nothing else
	// is affected.
	Hold(name string, fd int) error
	// Drop closes the stored descriptor of name.
	Drop(name string)
	// Names returns the names that can be taken.
	Names() []string
	// Take returns the descriptor that an earlier process stored, once. The store keeps its duplicate.
	Take(name string) (fd int, ok bool)
	// Put writes the record of an allocation and replaces an earlier one; Delete removes it. Id 0 and the ids from
	// 2^53 on are for the gateway's own records.
	Put(id uint64, record []byte)
	Delete(id uint64)
	// Records yields the records that an earlier process stored. record is valid until yield returns.
	Records(yield func(id uint64, record []byte) bool)
}

// Offload relays ChannelData of UDP listeners in the kernel. Workers call it.
type Offload interface {
	Add(OffloadChannel) (id uint32, err error)
	// Permit sets whether the peer may send to the client, because its permission may expire before the channel does.
	Permit(id uint32, toClient bool) error
	// Remove returns the totals since Add. Counters no longer reports the channel afterwards.
	Remove(id uint32) (up, down OffloadTraffic, err error)
	// Counters calls f for every channel with what the kernel relayed since the channel was added.
	Counters(f func(id uint32, up, down OffloadTraffic)) error
	// Describe returns the mode of the offload and the reason for it.
	Describe() string
}

// OffloadChannel is one channel to relay in the kernel.
type OffloadChannel struct {
	Client, Server netip.AddrPort // the client's address and the listener's address that it sends to; Server is never a wildcard
	Relay, Peer    netip.AddrPort
	Number         uint16
	// The channels of one allocation share its bandwidth, both directions together; 0: no limit.
	Allocation            uint64
	BytesPerSecond, Burst uint64
}

// OffloadTraffic is what the kernel relayed in one direction since the channel was added.
type OffloadTraffic struct {
	Packets, Bytes uint64 // user data without headers
	Last           int64  // by Options.Now, 0: none yet
}

// stream is one client connection of a TCP, TLS or DTLS listener as a worker sees it. Only the goroutine of the
// worker that owns the client's address calls it; no method blocks.
//
// The connection's reader posts its messages, in batches, and its end to that worker:
//
//	w := g.workerFor(path.Client)
//	w.post(func(w *worker) { w.fromStream(s, l, path, messages) })
//	w.post(func(w *worker) { w.streamGone(path) })
type stream interface {
	// deliver queues one message for the client, head followed by body, and copies both. The stream adds what its
	// transport requires (padding of ChannelData over TCP and TLS). It returns false if the queue is full; the
	// message is then lost.
	deliver(head, body []byte) bool
	// flush ends a poll of the worker in which deliver was called: the connection's writer may start.
	flush()
	// allocated reports whether the client has an allocation now. If it has none any more, it has a limited time to
	// create one.
	allocated(yes bool)
	// shut ends the connection, because its listener was closed.
	shut()
}
