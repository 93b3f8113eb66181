package node

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/udpio"
)

// offlineEngine is one worker without sockets: datagrams and time go in, datagrams come out. It is the in-memory counterpart of an
// engine, with any address and any time. Not for concurrent use.
type offlineEngine struct {
	*engine.Embedded
}

// newOfflineEngine makes one. send is given what the worker sends; datagram is valid during the call only.
func newOfflineEngine(cfg engine.Config, send func(datagram []byte, to netip.AddrPort)) (*offlineEngine, error) {
	write := func(messages []udpio.Message) {
		for i := range messages {
			send(messages[i].Buf[:messages[i].N], messages[i].Addr)
		}
	}
	list, err := engine.Embed(cfg, []engine.Owner{{Write: write, Wake: func() {}}})
	if err != nil {
		return nil, err
	}
	return &offlineEngine{list[0]}, nil
}

// Receive hands the worker a datagram, whose bytes it changes, at a time that never goes back.
func (o *offlineEngine) Receive(datagram []byte, from netip.AddrPort, now time.Duration) {
	o.Embedded.Receive(datagram, from, netip.Addr{}, now)
	o.Tick(now)
}

// Tick runs the timers that are due.
func (o *offlineEngine) Tick(now time.Duration) {
	o.Embedded.Tick(now)
	o.Flush()
	o.Publish()
}
