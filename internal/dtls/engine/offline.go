package engine

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/udpio"
)

// Offline is one worker without sockets: datagrams and time go in, datagrams come out. It is the in-memory counterpart of an
// Engine, for tests of handlers with any address and any time. Not for concurrent use.
type Offline struct {
	worker *Worker
}

// NewOffline makes an Offline with one worker. send is given what the worker sends; datagram is valid during the call only.
func NewOffline(cfg Config, send func(datagram []byte, to netip.AddrPort)) (*Offline, error) {
	cfg.Workers = 1
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	w, err := newServingWorker(0, &cfg, make([]byte, handshake.CookieSecretLength))
	if err != nil {
		return nil, err
	}
	w.workers = []*Worker{w}
	w.handler = cfg.NewHandler(w)
	w.out.publicOut = func(messages []udpio.Message) {
		for i := range messages {
			send(messages[i].Buf[:messages[i].N], messages[i].Addr)
		}
	}
	return &Offline{worker: w}, nil
}

// Receive hands the worker a datagram, whose bytes it changes, at a time that never goes back.
func (o *Offline) Receive(datagram []byte, from netip.AddrPort, now time.Duration) {
	o.worker.now = now
	o.worker.datagram(datagram, source{addr: from}, false)
	o.Tick(now)
}

// Tick runs the timers that are due.
func (o *Offline) Tick(now time.Duration) {
	o.worker.now = now
	o.worker.tick()
	o.worker.out.flush()
	o.worker.publish()
}

// Next is when Tick has something to do, or Never.
func (o *Offline) Next() time.Duration { return o.worker.next() }

// Stats are the worker's counters.
func (o *Offline) Stats() Stats { return o.worker.Stats() }
