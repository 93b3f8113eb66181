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
	embedded *Embedded
}

// NewOffline makes an Offline with one worker. send is given what the worker sends; datagram is valid during the call only.
func NewOffline(cfg Config, send func(datagram []byte, to netip.AddrPort)) (*Offline, error) {
	write := func(messages []udpio.Message) {
		for i := range messages {
			send(messages[i].Buf[:messages[i].N], messages[i].Addr)
		}
	}
	list, err := embed(cfg, make([]byte, handshake.CookieSecretLength), []Owner{{Write: write, Wake: func() {}}})
	if err != nil {
		return nil, err
	}
	return &Offline{embedded: list[0]}, nil
}

// Receive hands the worker a datagram, whose bytes it changes, at a time that never goes back.
func (o *Offline) Receive(datagram []byte, from netip.AddrPort, now time.Duration) {
	o.embedded.Receive(datagram, from, netip.Addr{}, now)
	o.Tick(now)
}

// Tick runs the timers that are due.
func (o *Offline) Tick(now time.Duration) {
	o.embedded.Tick(now)
	o.embedded.Flush()
	o.embedded.Publish()
}

// Next is when Tick has something to do, or Never.
func (o *Offline) Next() time.Duration { return o.embedded.Next() }

// Stats are the worker's counters.
func (o *Offline) Stats() Stats { return o.embedded.Stats() }
