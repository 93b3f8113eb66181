package gateway

import (
	"net/netip"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// worker owns a table of allocations with their relay sockets, and one socket of every UDP listener.
type worker struct {
	gateway *Gateway
	index   int
	table   *allocation.Table
	now     int64 // Unix nanoseconds at the begin of the turn
}

// listener is one configured listener, the same for all workers.
type listener struct {
	id          uint16
	config      ListenerConfig
	server      netip.AddrPort // as bound
	connections atomic.Int64   // of TCP, TLS and DTLS
	stream      any            // what stream.go keeps of it
}

// client is the gateway's state of an allocation: Allocation.Data.
type client struct {
	a        *allocation.Allocation
	listener *listener
	stream   stream // nil over UDP
	tcp      *tcpRelay
}

// post runs f in the worker's goroutine, soon. Any goroutine may call it; it never blocks.
func (w *worker) post(f func(*worker)) {}

// workerFor returns the worker that owns the clients of an address.
func (g *Gateway) workerFor(client netip.AddrPort) *worker { return nil }

// fromStream handles whole messages that a stream client sent, without padding. They are the worker's until it returns.
func (w *worker) fromStream(s stream, l *listener, p allocation.Path, messages [][]byte) {}

// streamGone ends the allocation of a connection that ended.
func (w *worker) streamGone(p allocation.Path) {}

// count adds to the listener's counter of a reason.
func (w *worker) count(l *listener, r allocation.Reason, n int) {}
