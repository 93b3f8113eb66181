package oscore

import (
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// ServerConfig is what a Server needs.
type ServerConfig struct {
	Contexts *Table
	Handler  exchange.Handler // of the requests, with the protected ones as they were before
	// Supported names the critical options that Handler understands.
	Supported message.Supported
	// Echo returns a value that only a request made later can carry, valid until the next call (RFC 9175 section 2.3); Echoed
	// reports whether an Echo option has such a value.
	Echo   func(s *exchange.Session, now time.Duration) []byte
	Echoed func(s *exchange.Session, value []byte, now time.Duration) bool
	Size   int // of the longest message, in bytes; default 2048
}

// Counters count since NewServer. Read them on the goroutine of the Server.
type Counters struct {
	Requests   uint64 `json:"requests" metric:"_requests_total" help:"Protected requests that were verified and executed."`
	Malformed  uint64 `json:"malformed" metric:"_malformed_total" help:"Requests whose OSCORE option cannot be read, answered with 4.02."`
	Unknown    uint64 `json:"unknown" metric:"_unknown_total" help:"Requests of a kid without a security context, answered with 4.01."`
	Replays    uint64 `json:"replays" metric:"_replays_total" help:"Requests with a sequence number seen before or too old, answered with 4.01."`
	Forged     uint64 `json:"forged" metric:"_forged_total" help:"Requests that do not verify, answered with 4.00."`
	Challenges uint64 `json:"challenges" metric:"_challenges_total" help:"Requests answered with an Echo option because the replay window was lost by a restart."`
	Renewals   uint64 `json:"renewals" metric:"_renewals_total" help:"Requests by which a client began to agree on a new context (RFC 8613 Appendix B.2)."`
	Unsent     uint64 `json:"unsent" metric:"_unsent_total" help:"Responses and notifications that could not be protected, and were not sent."`
}

// Server is an exchange.Handler that opens protected requests for another one, and protects its answers. Requests without the OSCORE
// option pass. One goroutine at a time may use it.
type Server struct {
	cfg        ServerConfig
	codec      *Codec
	request    message.Message // the opened one
	in, out    []byte
	protection Protection
	counters   Counters
}

// NewServer returns a Server.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Size == 0 {
		cfg.Size = 2048
	}
	s := &Server{cfg: cfg, codec: NewCodec(cfg.Size), in: make([]byte, 0, cfg.Size), out: make([]byte, 0, cfg.Size+Overhead)}
	s.protection.server = s
	return s
}

// Counters returns the counters since NewServer.
func (s *Server) Counters() Counters { return s.counters }

// Protection is that of one request (exchange.Protection). It belongs to the goroutine of its Server.
type Protection struct {
	server  *Server
	binding Binding
}

// Context is the one that the request was protected with.
func (p *Protection) Context() *Context { return p.binding.context }

// Peer implements exchange.Protection.
func (p *Protection) Peer() uint64 { return p.binding.context.number }

// Keep implements exchange.Protection: the nonce of the request is left to the answer that is sent at once.
func (p *Protection) Keep() exchange.Protection {
	kept := *p
	kept.binding.used = true
	return &kept
}

// Protect implements exchange.Protection.
func (p *Protection) Protect(datagram []byte) []byte {
	s := p.server
	sealed, err := s.codec.SealResponse(s.out[:0], datagram, &p.binding, false)
	if err != nil {
		s.counters.Unsent++
		return nil
	}
	return sealed
}

// Supported is the one of ServerConfig, and the OSCORE option.
func (s *Server) Supported(id message.OptionID) bool {
	return id == message.OSCORE || s.cfg.Supported(id)
}

// Serve implements exchange.Handler.
func (s *Server) Serve(es *exchange.Session, m *message.Message, reply *exchange.Reply, now time.Duration) {
	if _, ok := m.Option(message.OSCORE); !ok {
		s.cfg.Handler.Serve(es, m, reply, now)
		return
	}
	binding := &s.protection.binding
	inner, verdict := s.codec.OpenRequest(s.in[:0], m, s.cfg.Contexts, binding)
	if verdict == Opened || verdict == Unfresh {
		if message.Parse(inner, &s.request) != nil {
			verdict = Forged // more options than this node takes
		} else if value, ok := s.request.Option(message.Echo); ok && s.cfg.Echoed(es, value, now) && verdict == Unfresh {
			verdict = binding.Echoed()
		}
	}
	if s.refused(verdict, reply) {
		return
	}
	if verdict == Renewing {
		s.renew(reply)
		return
	}
	reply.Protected(&s.protection, Overhead)
	if verdict == Unfresh {
		s.counters.Challenges++
		reply.Begin(message.Unauthorized).Option(message.Echo, s.cfg.Echo(es, now))
		s.seal(reply, true)
		return
	}
	s.counters.Requests++
	if id, bad := s.request.BadOption(s.cfg.Supported); bad {
		code := message.BadOption
		if id == message.ProxyURI || id == message.ProxyScheme {
			code = message.ProxyingNotSupported
		}
		reply.Text(code, "critical option "+strconv.Itoa(int(id))+" not supported here")
	} else {
		s.cfg.Handler.Serve(es, &s.request, reply, now)
	}
	s.seal(reply, false)
}

// renew answers request 1 of Appendix B.2 with response 1. The request is not executed: it may be a repeated one.
func (s *Server) renew(reply *exchange.Reply) {
	s.counters.Renewals++
	reply.Protected(&s.protection, Overhead+kidContextR2)
	reply.Begin(message.Unauthorized)
	sealed, err := s.codec.SealRenewal(s.out[:0], reply.Message(), &s.protection.binding)
	if err != nil {
		s.counters.Unsent++
		sealed = nil
	}
	reply.Seal(sealed)
}

// refused answers a request that was not opened, unprotected and not to be cached (RFC 8613 sections 7.4 and 8.2).
func (s *Server) refused(v Verdict, reply *exchange.Reply) bool {
	code, text, counter := message.Unauthorized, "", &s.counters.Unknown
	switch v {
	case Malformed:
		code, text, counter = message.BadOption, "Failed to decode COSE", &s.counters.Malformed
	case Unknown:
		text = "Security context not found"
	case Replayed:
		text, counter = "Replay detected", &s.counters.Replays
	case Forged:
		code, text, counter = message.BadRequest, "Decryption failed", &s.counters.Forged
	default:
		return false
	}
	*counter++
	b := reply.Begin(code)
	b.Uint(message.MaxAge, 0)
	copy(b.Grow(min(len(text), b.Room())), text)
	return true
}

// seal replaces the answer by its protected form.
func (s *Server) seal(reply *exchange.Reply, own bool) {
	answer := reply.Message()
	if answer == nil {
		reply.Begin(message.InternalServerError)
		answer = reply.Message()
	}
	if answer != nil && exchange.Unwanted(&s.request, message.Code(answer[1])) {
		reply.Silent()
	}
	sealed, err := s.codec.SealResponse(s.out[:0], answer, &s.protection.binding, own)
	if err != nil {
		s.counters.Unsent++
		sealed = nil
	}
	reply.Seal(sealed)
}
