package streamserver

import (
	"crypto/tls"
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Never is a time that is never reached.
const Never = time.Duration(1<<63 - 1)

// Times and sizes that are no option.
const (
	handshakeTime = 10 * time.Second
	guestTime     = 30 * time.Second
	messageTime   = 30 * time.Second
	writeTime     = 30 * time.Second

	readBytes  = 16 << 10  // of one read
	queueBytes = 64 << 10  // queued for a peer; beyond, no message of it is handled and Peer.Room is 0
	abortBytes = 512 << 10 // queued for a peer; beyond, the connection ends
	eventsSize = 256       // connections that one poll serves
	inboxSize  = 4096      // requests of other goroutines to a worker
)

// Handler serves the connections of one worker. It never blocks.
type Handler interface {
	// Serve handles one request or response. It appends its answer, a message of message.Builder, to out, whose length is 0 and
	// whose capacity is what the peer accepts, and returns it; an empty slice sends nothing. m and out are valid during the call.
	Serve(p *Peer, m *message.Message, out []byte, now time.Duration) []byte
	// Tick runs timers that are due and returns the time of the next one, or Never.
	Tick(now time.Duration) (next time.Duration)
	// Closed reports that p will not be served again. The Handler must not keep p.
	Closed(p *Peer, now time.Duration)
}

// Config is what Open needs. Zero values take the defaults named.
type Config struct {
	Listen  netip.AddrPort
	TLS     *tls.Config // nil: plain TCP
	Workers int         // default: GOMAXPROCS

	MaxConnections int           // per worker; default 16384
	MaxHandshakes  int           // TLS handshakes under way, of all workers; default 256
	MaxHeld        int           // bytes of incomplete messages per worker; default 64 MiB
	Idle           time.Duration // without a byte in either direction; default 1 h

	NewHandler func(*Worker) Handler // one per worker; required
	Log        *slog.Logger

	now func() time.Duration // tests replace the clock
}

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = 16384
	}
	if c.MaxHandshakes == 0 {
		c.MaxHandshakes = 256
	}
	if c.MaxHeld == 0 {
		c.MaxHeld = 64 << 20
	}
	if c.Idle == 0 {
		c.Idle = time.Hour
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		start := time.Now()
		c.now = func() time.Duration { return time.Since(start) }
	}
	return c
}

// share returns a quarter of a bound: what one source may have.
func share(bound int) int { return max(1, bound/4) }

// Stats count since Open.
type Stats struct {
	Connections int    `json:"connections" metric:"_connections" help:"Connections that are open now, TLS handshakes not counted."`
	Guests      int    `json:"guests" metric:"_guests" help:"Open connections that have not sent a request yet."`
	Handshakes  int    `json:"handshakes" metric:"_handshakes" help:"TLS handshakes that are under way."`
	Accepted    uint64 `json:"accepted" metric:"_accepted_total" help:"Connections that were accepted."`
	Refused     uint64 `json:"refused" metric:"_refused_total" help:"Connections closed at once because a bound on connections or handshakes was reached."`
	Evicted     uint64 `json:"evicted" metric:"_evicted_total" help:"Connections without a request that made room for another one."`
	Failed      uint64 `json:"handshakes_failed" metric:"_handshakes_failed_total" help:"TLS handshakes that failed or took too long."`
	TimedOut    uint64 `json:"timed_out" metric:"_timed_out_total" help:"Connections closed because they were idle, or a message or the first request took too long."`
	Slow        uint64 `json:"slow" metric:"_slow_total" help:"Connections closed because the peer did not take what was sent to it."`
	Aborted     uint64 `json:"aborted" metric:"_aborted_total" help:"Connections that the server aborted because the peer broke the protocol."`
	Overloaded  uint64 `json:"overloaded" metric:"_overloaded_total" help:"Connections closed because incomplete messages took too much memory."`
	Messages    uint64 `json:"messages" metric:"_messages_total" help:"Requests and responses that were received."`
	Pings       uint64 `json:"pings" metric:"_pings_total" help:"Pings that were answered."`
	Received    uint64 `json:"received_bytes" metric:"_received_bytes_total" help:"Bytes that were received, inside TLS."`
	Sent        uint64 `json:"sent_bytes" metric:"_sent_bytes_total" help:"Bytes that were sent, inside TLS."`
}
