package handshake

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// ServerConfig is what a Server needs.
type ServerConfig struct {
	// PSK returns the key of an identity, which is valid during the call only.
	PSK    func(identity []byte) (key []byte, ok bool)
	Suites []record.Suite // in order of preference; default CCM_8, CCM, GCM
	// NewCID makes a fresh connection id; nil: none are negotiated. All are of one
	// length.
	NewCID func() ([]byte, error)
	// RequireExtendedMaster refuses clients without RFC 7627.
	RequireExtendedMaster bool
	CookieSecret          []byte    // CookieSecretLength bytes, shared by all who serve one address; default random
	Rand                  io.Reader // default crypto/rand
}

// Server accepts handshakes. Not safe for concurrent use: one for each worker.
type Server struct {
	cfg     ServerConfig
	cookies cookies
	hello   hello
	held    int // bytes that all Pendings keep for later, at most MaxHeld
}

// MaxHeld is how many bytes all handshakes of a Server may hold that came ahead of their keys.
const MaxHeld = 4 << 20

// Outcome is what became of a ClientHello.
type Outcome uint8

// Outcomes of Server.Hello.
const (
	Ignored  Outcome = iota // not a hello that can be served: say nothing
	Verify                  // the reply is a HelloVerifyRequest; nothing is kept
	Accepted                // the cookie is good: a Pending, and the reply is our flight
	Repeated                // the hello of the existing Pending again: the reply is our flight again
	Refused                 // the cookie is good, but there is nothing in common: the reply is an alert
)

// NewServer checks cfg and makes a Server.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.PSK == nil {
		return nil, errors.New("handshake: no PSK look-up")
	}
	if len(cfg.Suites) == 0 {
		cfg.Suites = DefaultSuites()
	}
	for _, s := range cfg.Suites {
		if !s.Known() {
			return nil, errors.New("handshake: unknown suite " + s.String())
		}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.CookieSecret == nil {
		cfg.CookieSecret = make([]byte, CookieSecretLength)
		if _, err := io.ReadFull(cfg.Rand, cfg.CookieSecret); err != nil {
			return nil, err
		}
	}
	return &Server{cfg: cfg, cookies: newCookies(cfg.CookieSecret)}, nil
}

// DefaultSuites are all suites, CCM_8 first, as RFC 7925 wants.
func DefaultSuites() []record.Suite {
	return []record.Suite{record.PSKWithAES128CCM8, record.PSKWithAES128CCM, record.PSKWithAES128GCMSHA256}
}

// IsHello reports whether the record starts a handshake: a ClientHello in epoch 0.
func IsHello(r *record.Record) bool {
	return r.Type == record.Handshake && r.Epoch == 0 && len(r.Body) > 0 && r.Body[0] == typeClientHello
}

// Hello handles a record for which IsHello holds, and appends the reply, one
// datagram, to out. Nothing is kept before the cookie has proven the address.
// existing is the handshake under way with this address, if any. A hello in
// fragments is ignored: it cannot be served without state.
func (s *Server) Hello(from netip.AddrPort, r *record.Record, existing *Pending, now time.Duration, out []byte) (Outcome, []byte, *Pending) {
	f, rest, ok := nextFragment(r.Body)
	if !ok || len(rest) != 0 || f.typ != typeClientHello || !f.whole() || f.sequence > 1 {
		return Ignored, out, nil
	}
	h := &s.hello
	if !parseClientHello(f.data, h) || h.version > version12 || bytes.IndexByte(h.methods, 0) < 0 {
		return Ignored, out, nil
	}
	if !s.cookies.valid(from, h, now) {
		return Verify, s.verifyRequest(from, h, r.Sequence, now, out), nil
	}
	if existing != nil && bytes.Equal(existing.client[:], h.random) {
		if existing.state != waitKeyExchange {
			return Ignored, out, nil
		}
		return Repeated, existing.flight(now, out), existing
	}
	suite, ok := s.choose(h)
	if !ok || (s.cfg.RequireExtendedMaster && !h.extendedMaster) || len(h.renegotiated) != 0 {
		return Refused, appendAlert(out, r.Sequence, alertHandshakeFailure), nil
	}
	p, err := s.accept(h, &f, suite, r.Sequence)
	if err != nil {
		return Ignored, out, nil
	}
	return Accepted, p.flight(now, out), p
}

func (s *Server) choose(h *hello) (record.Suite, bool) {
	for _, want := range s.cfg.Suites {
		for b := h.suites; len(b) > 0; b = b[2:] {
			if record.Suite(binary.BigEndian.Uint16(b)) == want {
				return want, true
			}
		}
	}
	return 0, false
}

// verifyRequest echoes the hello's record sequence: no state, no counter
// (RFC 6347 section 4.2.1).
func (s *Server) verifyRequest(from netip.AddrPort, h *hello, sequence uint64, now time.Duration, out []byte) []byte {
	var body [messageHeader + 3 + cookieLength]byte
	b := appendHeader(body[:0], typeHelloVerifyRequest, 0, 3+cookieLength)
	b = append(b, version10>>8, version10&0xff, cookieLength)
	b = append(b, s.cookies.make(from, h, period(now))...)
	return record.AppendPlain(out, record.Handshake, sequence, b)
}

func (s *Server) accept(h *hello, f *fragment, suite record.Suite, sequence uint64) (*Pending, error) {
	p := newPending(s)
	p.suite = suite
	p.nextRecord = sequence
	p.extendedMaster = h.extendedMaster
	p.renegotiation = h.renegotiation
	copy(p.client[:], h.random)
	if _, err := io.ReadFull(s.cfg.Rand, p.server[:]); err != nil {
		return nil, err
	}
	if h.hasCID && s.cfg.NewCID != nil && len(h.cid) <= record.MaxCID {
		p.hasCID = true
		p.routability = h.routability
		p.writeCID = slices.Clone(h.cid)
		var err error
		if p.readCID, err = s.cfg.NewCID(); err != nil {
			return nil, err
		}
	}
	p.transcript.Write(f.raw)
	// Our first message carries the number of the hello it answers.
	p.hello = p.appendServerHello(nil, f.sequence)
	p.done = appendHeader(nil, typeServerHelloDone, f.sequence+1, 0)
	p.transcript.Write(p.hello)
	p.transcript.Write(p.done)
	p.messages = f.sequence + 2
	p.in.next = f.sequence + 1
	return p, nil
}

// Alert descriptions (RFC 5246 section 7.2).
const (
	alertHandshakeFailure = 40
	alertDecryptError     = 51
	alertInternalError    = 80
)

func appendAlert(out []byte, sequence uint64, description byte) []byte {
	return record.AppendPlain(out, record.Alert, sequence, []byte{2, description})
}
