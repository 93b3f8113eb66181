package engine

import (
	"net/netip"
	"time"
)

// Worker is one core's share of an Engine.
type Worker struct {
	id int
}

// ID is 0 for the first worker. Safe from any goroutine.
func (w *Worker) ID() int { return w.id }

// Now is the time of the current batch, since the engine was opened.
func (w *Worker) Now() time.Duration { return 0 }

// Send seals payload for p and queues it; the batch is written when the worker
// comes round. It returns false if p is closed, payload exceeds MaxPayload or
// the amplification limit of an address not yet proven forbids it. payload is
// copied.
func (w *Worker) Send(p *Peer, payload []byte) bool { return false }

// Close ends p's session with close_notify.
func (w *Worker) Close(p *Peer) {}

// WakeAt asks for Handler.Tick no later than at.
func (w *Worker) WakeAt(at time.Duration) {}

// Post runs f on the worker's goroutine, soon. Safe from any goroutine; false
// when the worker has ended or its queue is full.
func (w *Worker) Post(f func()) bool { return false }

// Inject handles datagram as if it had come from client, by way of router; it
// changes the bytes. Replies take the same way until a newer record comes
// another one.
func (w *Worker) Inject(datagram []byte, client, router netip.AddrPort) {}

// SendRaw sends datagram, a copy of it, from the public socket.
func (w *Worker) SendRaw(datagram []byte, to netip.AddrPort) {}

// LinkBuffer returns the next send buffer of the link socket, to be filled and
// given to LinkSend at once; it is overwritten otherwise.
func (w *Worker) LinkBuffer() []byte { return nil }

// LinkSend queues the first n bytes of LinkBuffer to a node; equal lengths to
// one node leave together (UDP_SEGMENT).
func (w *Worker) LinkSend(n int, to netip.AddrPort) {}
