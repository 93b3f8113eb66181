package gateway

import (
	"net/netip"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// Keeper holds what outlives the process: sockets by name and the records of allocations. Package keep has one.
// Workers call Put and Delete; they must not block for long.
type Keeper interface {
	// Store keeps a duplicate of fd under name.
	Store(name string, fd int) error
	// Drop forgets the descriptor.
	Drop(name string)
	// Take returns a kept descriptor, which then belongs to the caller; the keeper keeps its own duplicate.
	Take(name string) (fd int, ok bool)
	Put(id uint64, record []byte)
	Delete(id uint64)
	// Records calls yield for every record kept at the start.
	Records(yield func(id uint64, record []byte) bool)
}

// Offload relays ChannelData of UDP listeners in the kernel.
type Offload interface {
	Add(OffloadChannel) (id uint32, err error)
	Permit(id uint32, toClient bool) error
	Remove(id uint32) error
	Counters(func(id uint32, up, down OffloadTraffic)) error
	Describe() string
}

// OffloadChannel is one channel to relay in the kernel.
type OffloadChannel struct {
	Client, Server netip.AddrPort // how the client speaks to us
	Relay, Peer    netip.AddrPort
	Number         uint16
}

// OffloadTraffic is what went one way through the kernel since the channel was added.
type OffloadTraffic struct {
	Packets, Bytes uint64
	Last           int64 // Unix nanoseconds, 0: none yet
}

// stream is one client connection of a TCP, TLS or DTLS listener, as a worker sees it. Only the goroutine of the
// worker that owns the client's path calls it; nothing here blocks.
type stream interface {
	// deliver queues one message, head followed by body, for the client. It copies both. The stream adds what its
	// transport asks for (padding of ChannelData over TCP and TLS). False: the queue is full, the message is lost.
	deliver(head, body []byte) bool
	// flush ends a turn of the worker: the connection's writer may start.
	flush()
	// shut ends the connection.
	shut()
}

// A stream's reader gives its messages to the worker of its path in batches:
//
//	w := g.workerFor(path.Client)
//	w.post(func(w *worker) { w.fromStream(s, l, path, messages) })   // any number of whole messages, no padding
//	w.post(func(w *worker) { w.streamGone(s, path) })                // the connection ended: its allocation ends too
//
// messages belong to the worker until the posted function returned.

// listenStream opens a TCP, TLS or DTLS listener. (stream.go)
type streamListener interface {
	// Close stops accepting and ends every connection.
	Close() error
}

var _ = allocation.UDP
