package engine

import (
	"crypto/rand"
	"errors"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/udpio"
)

// Embedded is one worker of a server whose owner reads and writes the socket, in a loop that also has other things to do. It has
// neither a socket nor a goroutine: datagrams and the time go in, datagrams come out. All methods, and the Handler, run on the
// goroutine of the owner's loop. Times never go back.
type Embedded struct{ worker *Worker }

// Owner is what an Embedded needs of its owner.
type Owner struct {
	// Write writes datagrams, which it must not keep. It is called by Flush, and before that when all buffers are in use.
	Write func(messages []udpio.Message)
	// Wake is called on any goroutine, when another worker has left datagrams: soon afterwards the owner calls TakeOver.
	Wake func()
}

// Embed makes one worker for each owner; together they serve one address. Of cfg, Listen, Workers and Log have no effect, and there
// is no Cluster. With connection ids the sockets should be steered by CIDs.Steering.
func Embed(cfg Config, owners []Owner) ([]*Embedded, error) {
	secret := make([]byte, handshake.CookieSecretLength)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	return embed(cfg, secret, owners)
}

func embed(cfg Config, secret []byte, owners []Owner) ([]*Embedded, error) {
	if cfg.Cluster != nil {
		return nil, errors.New("engine: a cluster needs an engine with sockets of its own")
	}
	cfg.Workers = len(owners)
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	all := make([]*Worker, len(owners))
	list := make([]*Embedded, len(owners))
	for i, owner := range owners {
		w, err := newServingWorker(i, &cfg, secret)
		if err != nil {
			return nil, err
		}
		w.out.publicOut, w.inbox = owner.Write, newInbox(owner.Wake)
		all[i], list[i] = w, &Embedded{worker: w}
	}
	for _, w := range all {
		w.workers = all
		w.setHandler(cfg.NewHandler(w))
	}
	return list, nil
}

// Worker returns the worker, for Send, Close and what else a Handler calls.
func (e *Embedded) Worker() *Worker { return e.worker }

// Receive handles a datagram, whose bytes it changes. local is our address, on wildcard sockets.
func (e *Embedded) Receive(datagram []byte, from netip.AddrPort, local netip.Addr, now time.Duration) {
	e.worker.now = now
	e.worker.datagram(datagram, source{addr: from, local: local}, false)
}

// TakeOver handles the datagrams that other workers have left.
func (e *Embedded) TakeOver(now time.Duration) {
	e.worker.now = now
	e.worker.takeOver()
}

// Tick runs the timers that are due.
func (e *Embedded) Tick(now time.Duration) {
	e.worker.now = now
	e.worker.tick()
}

// Next is when Tick has something to do, or Never.
func (e *Embedded) Next() time.Duration { return e.worker.next() }

// Flush writes what is queued.
func (e *Embedded) Flush() { e.worker.out.flush() }

// Close ends all handshakes, and all sessions with close_notify. Nothing else may be called afterwards.
func (e *Embedded) Close() {
	w := e.worker
	w.inbox.End()
	for _, h := range w.halfOpens.byAddress {
		w.giveUp(h, HandshakeAbandoned)
	}
	for p := w.peers.oldest; p != nil; p = w.peers.oldest {
		w.Close(p)
	}
	w.out.flush()
}

// Publish makes the counters visible to Stats.
func (e *Embedded) Publish() { e.worker.publish() }

// Stats are the worker's counters as of the last Publish. Safe from any goroutine.
func (e *Embedded) Stats() Stats { return e.worker.Stats() }
