package node

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/oscore"
	"github.com/weir-lb/weir/internal/coap/resource"
	"github.com/weir-lb/weir/internal/coap/stream/streamserver"
	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/steering/evict"
)

// streamHandler serves the connections of one worker over TCP or TLS.
type streamHandler struct {
	core
	echoes echoes
}

func newStreamHandler(l *listener, w *streamserver.Worker, seed uint64) *streamHandler {
	h := &streamHandler{core: core{listener: l, worker: w, wake: streamserver.Never}, echoes: newEchoes(l.echo)}
	h.server = resource.New(resource.Config{Tree: l.tree, Guard: streamGuard{}, Exponent: 6, Post: w.Post, Wake: h.wakeAt, Overhead: oscore.Overhead})
	requests, supported := h.protect(h, maxMessage)
	h.endpoint = exchange.New(exchange.Config{NStart: -1, ProbingRate: -1, Seed: seed, Supported: supported, Unmatched: h.notification}, h, requests, h)
	h.server.Bind(h.endpoint)
	return h
}

// maxMessage bounds the messages that OSCORE opens and protects over TCP and TLS, in bytes.
const maxMessage = 65536

func (h *streamHandler) echo(s *session, now time.Duration) []byte {
	return h.echoes.value(s.conn.Addr(), now)
}

func (h *streamHandler) echoed(s *session, value []byte, now time.Duration) bool {
	return h.echoes.valid(value, s.conn.Addr(), now)
}

// optionRoom is what header, token and options of a message in blocks may take, in bytes.
const optionRoom = 256

// Serve implements [streamserver.Handler].
func (h *streamHandler) Serve(p *streamserver.Peer, m *message.Message, out []byte, now time.Duration) []byte {
	s, ok := p.State.(*session)
	if !ok {
		s = &session{conn: p, core: &h.core}
		s.Owner, s.Peer, s.Stream = s, &s.Session, true
		p.State = s
	}
	h.now = now
	s.BERT = p.Settings().BERT(optionRoom)
	out = h.endpoint.ReceiveReliable(&s.Session.Session, m, out, now)
	h.awaken()
	return out
}

// Closed implements [streamserver.Handler].
func (h *streamHandler) Closed(p *streamserver.Peer, _ time.Duration) {
	if s, ok := p.State.(*session); ok {
		h.close(s)
		p.State = nil
	}
}

// SendTo implements [exchange.Sender].
func (h *streamHandler) SendTo(s *exchange.Session, datagram []byte, _ time.Duration) {
	if owner := ownerOf(s); owner != nil {
		owner.conn.Send(datagram)
	}
}

// streamGuard is the [resource.Guard] of connections: their addresses have proven themselves.
type streamGuard struct{}

func (streamGuard) Proven(*resource.Session) bool { return true }

func (streamGuard) Source(s *resource.Session) evict.Source {
	return evict.SourceOf(owner(s).addr().Addr())
}

func (streamGuard) Empty(*resource.Session) int { return 0 }

func (streamGuard) Room(s *resource.Session) int { return owner(s).conn.Room() }

func (streamGuard) Probe(*resource.Session, *exchange.Reply) {}

func (streamGuard) Echo(*resource.Session, time.Duration) []byte { return nil }

// addr is the address of the client.
func (s *session) addr() netip.AddrPort {
	if s.conn != nil {
		return s.conn.Addr()
	}
	return s.peer.Addr()
}

// info describes the client.
func (s *session) info() engine.Info {
	if s.conn == nil {
		return s.peer.Info()
	}
	info := engine.Info{Addr: s.conn.Addr()}
	if state, ok := s.conn.TLS(); ok {
		info.Suite = tls.CipherSuiteName(state.CipherSuite)
		info.Identity = subjectOf(state.PeerCertificates)
	}
	return info
}

// subjectOf names the client by the subject of its certificate; "" without one.
func subjectOf(chain []*x509.Certificate) string {
	if len(chain) == 0 {
		return ""
	}
	return chain[0].Subject.String()
}
