package gateway

import "net/netip"

// Store holds what outlives the process: sockets by name and the records of allocations. *handover.Store is one. Workers
// call Hold, Drop, Put and Delete while they serve; none of them may block for long.
type Store interface {
	// Hold keeps a duplicate of fd under name. An error costs only the socket's survival.
	Hold(name string, fd int) error
	// Drop forgets the descriptor of name.
	Drop(name string)
	// Names lists what can be taken.
	Names() []string
	// Take gives the caller the descriptor that an earlier process stored, once. The store keeps its duplicate.
	Take(name string) (fd int, ok bool)
	// Put writes the record of an allocation, in place of an earlier one, Delete removes it. Id 0 and those from 2^53 on are the gateway's own.
	Put(id uint64, record []byte)
	Delete(id uint64)
	// Records yields what an earlier process put. record is valid until yield returns.
	Records(yield func(id uint64, record []byte) bool)
}

// Offload relays ChannelData of UDP listeners in the kernel. Workers call it.
type Offload interface {
	Add(OffloadChannel) (id uint32, err error)
	// Permit says whether the peer may send to the client: its permission may end before the channel does.
	Permit(id uint32, toClient bool) error
	// Remove gives the totals since Add, which Counters does not tell any more.
	Remove(id uint32) (up, down OffloadTraffic, err error)
	// Counters calls f for every channel with what went through the kernel since it was added.
	Counters(f func(id uint32, up, down OffloadTraffic)) error
	// Describe says in which mode it runs and why.
	Describe() string
}

// OffloadChannel is one channel to relay in the kernel.
type OffloadChannel struct {
	Client, Server netip.AddrPort // how the client speaks to us; Server is never a wildcard
	Relay, Peer    netip.AddrPort
	Number         uint16
	// The channels of one allocation share its bandwidth, of both directions together; 0: no bound.
	Allocation            uint64
	BytesPerSecond, Burst uint64
}

// OffloadTraffic is what went one way through the kernel since the channel was added.
type OffloadTraffic struct {
	Packets, Bytes uint64 // user data without headers
	Last           int64  // by Options.Now, 0: none yet
}

// stream is one client connection of a TCP, TLS or DTLS listener as a worker sees it. Only the goroutine of the worker
// that owns the client's address calls it; nothing here blocks.
//
// The connection's reader gives its messages to that worker in batches, and its end:
//
//	w := g.workerFor(path.Client)
//	w.post(func(w *worker) { w.fromStream(s, l, path, messages) })
//	w.post(func(w *worker) { w.streamGone(path) })
type stream interface {
	// deliver queues one message, head followed by body, for the client, and copies both. The stream adds what its
	// transport asks for (padding of ChannelData over TCP and TLS). False: the queue is full, the message is lost.
	deliver(head, body []byte) bool
	// flush ends a turn of the worker in which deliver was called: the connection's writer may start.
	flush()
	// allocated says that the client has an allocation now, or has none any more: then it has a while to make one.
	allocated(yes bool)
	// shut ends the connection: its listener is gone.
	shut()
}
