package streamserver

import (
	"crypto/tls"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/coap/stream"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/udpio"
)

// Peer is one connection. It belongs to one worker and may be kept until Handler.Closed is called with it.
type Peer struct {
	// State is for the Handler.
	State any

	worker  *Worker
	slot    int32
	socket  udpio.Stream
	token   uint64
	addr    netip.AddrPort
	source  evict.Source
	decoder stream.Decoder
	session stream.Session
	held    int // bytes of decoder, as counted by the worker

	tls  *tls.Conn    // nil over TCP
	wire *stream.Wire // the transport of tls

	out     []byte // not sent yet: frames, over TLS records
	room    bool   // the poller reports when the socket is writable
	unread  bool   // the poller does not report what there is to read
	dirty   bool   // in worker.dirty
	stalled bool   // messages wait in decoder until less is queued
	ended   bool   // nothing is read or written from here on
	leaving bool   // closes when out is sent
	member  bool   // has sent a request

	opened     time.Duration
	active     time.Duration // last byte in either direction
	incomplete time.Duration // first byte of an incomplete message; Never: there is none
	blocked    time.Duration // since when out waits for the peer without progress; Never: it does not
}

// Addr is the address of the client.
func (p *Peer) Addr() netip.AddrPort { return p.addr }

// Settings are what the client announced in its CSM.
func (p *Peer) Settings() stream.Settings { return p.session.Peer }

// TLS returns the state of the TLS connection; false over plain TCP.
func (p *Peer) TLS() (tls.ConnectionState, bool) {
	if p.tls == nil {
		return tls.ConnectionState{}, false
	}
	return p.tls.ConnectionState(), true
}

// Room is how many bytes a message may have that is sent to the peer now: 0 while too much is queued.
func (p *Peer) Room() int {
	if p.ended || p.leaving || len(p.out) > queueBytes {
		return 0
	}
	return p.session.Peer.MaxMessageSize
}

// Send queues a message of message.Builder. It returns false if the connection has ended, the peer does not accept a message
// of that size, or too much is queued.
func (p *Peer) Send(datagram []byte) bool {
	if len(datagram) > p.Room() {
		return false
	}
	frame, err := stream.Append(p.worker.frame[:0], datagram)
	p.worker.frame = frame
	if err != nil {
		return false
	}
	return p.queue(frame)
}

// queue queues a frame, over TLS as a record, to be written at the end of the poll.
func (p *Peer) queue(frame []byte) bool {
	if p.ended || len(frame) == 0 {
		return false
	}
	if p.tls != nil {
		if _, err := p.tls.Write(frame); err != nil {
			p.end()
			return false
		}
	} else {
		p.out = append(p.out, frame...)
	}
	p.worker.stats.Sent += uint64(len(frame))
	p.worker.touch(p)
	return true
}

// end closes the connection at the end of this poll.
func (p *Peer) end() {
	if !p.ended {
		p.ended = true
		p.worker.ended = append(p.worker.ended, p)
	}
}

// leave closes the connection when what is queued has been sent.
func (p *Peer) leave() {
	p.leaving = true
	if p.tls != nil {
		_ = p.tls.CloseWrite() // into out; a connection that cannot even take that ends with its next write
	}
	p.worker.touch(p)
}

// due is when the connection must be looked at: the earliest of its deadlines.
func (p *Peer) due() time.Duration {
	at := p.active + p.worker.server.cfg.Idle
	if !p.member {
		at = min(at, p.opened+guestTime)
	}
	if p.incomplete != Never {
		at = min(at, p.incomplete+messageTime)
	}
	if p.blocked != Never {
		at = min(at, p.blocked+writeTime)
	}
	return at
}
