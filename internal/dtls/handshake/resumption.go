package handshake

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// Session is what a later handshake needs to resume a session with fresh keys and without proofs of identity. It holds a
// secret, so it must not be logged.
type Session struct {
	suite      record.Suite
	master     [masterLength]byte
	extended   bool // the master secret is (RFC 7627)
	auth       Auth
	identity   string
	serverName string
	expires    time.Time // at the server

	id, ticket []byte // at the client: what to offer
}

// Sizes of tickets and session ids in bytes.
const (
	sessionIDLength = 32
	ticketName      = 16
	ticketNonce     = 12
	ticketTag       = 16
	// maxTicketIdentity bounds the identities in tickets, so that a ticket fits the datagram of the last flight. Longer ones are
	// resumed by session id only.
	maxTicketIdentity = 256
	maxTicket         = ticketName + ticketNonce + 1 + 2 + masterLength + 2 + 8 + 2 + maxTicketIdentity + 1 + maxServerName + ticketTag
)

// TicketSecretLength is the length of a ticket secret in bytes.
const TicketSecretLength = 32

// Lifetime and number of the sessions that can be resumed, if a ResumptionConfig does not say.
const (
	DefaultSessionLifetime = 24 * time.Hour
	DefaultMaxSessions     = 10000
)

// ResumptionConfig is what a Resumption needs. Zero values take the defaults named.
type ResumptionConfig struct {
	// Lifetime is how long after its full handshake a session may be resumed; default DefaultSessionLifetime.
	Lifetime time.Duration
	// MaxSessions bounds the sessions kept for resumption by id; default DefaultMaxSessions. Each takes about 250 bytes. The
	// oldest makes room: its client makes a full handshake.
	MaxSessions int
}

// Resumption is what servers share to resume sessions: those that clients name by an id (RFC 5246 section 7.3) are kept here; the
// others travel sealed in tickets that clients keep (RFC 5077), which every server with the same secret can open. Safe for
// concurrent use.
type Resumption struct {
	cfg  ResumptionConfig
	keys atomic.Pointer[[]ticketKey]

	mu   sync.Mutex
	byID map[[sessionIDLength]byte]*Session
	ring [][sessionIDLength]byte // in the order of age, from next on
	next int
}

// ticketKey seals and opens tickets.
type ticketKey struct {
	name [ticketName]byte
	aead cipher.AEAD
}

// NewResumption makes a Resumption with a random ticket secret.
func NewResumption(cfg ResumptionConfig) (*Resumption, error) {
	if cfg.Lifetime == 0 {
		cfg.Lifetime = DefaultSessionLifetime
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = DefaultMaxSessions
	}
	r := &Resumption{cfg: cfg, byID: make(map[[sessionIDLength]byte]*Session)}
	secret := make([]byte, TicketSecretLength)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	return r, r.SetSecrets(secret)
}

// SetSecrets sets the secrets of tickets, each TicketSecretLength bytes. The first one seals; all of them open. To roll the secret
// of a cluster, add the new one behind the old on every node, then put it first, and drop the old one after Lifetime.
func (r *Resumption) SetSecrets(secrets ...[]byte) error {
	if len(secrets) == 0 {
		return errors.New("handshake: no ticket secret")
	}
	keys := make([]ticketKey, len(secrets))
	for i, secret := range secrets {
		if len(secret) != TicketSecretLength {
			return errors.New("handshake: a ticket secret must have 32 bytes")
		}
		derive := func(label string) []byte {
			mac := hmac.New(sha256.New, secret)
			mac.Write([]byte(label))
			return mac.Sum(nil)
		}
		copy(keys[i].name[:], derive("weir dtls ticket name"))
		block, err := aes.NewCipher(derive("weir dtls ticket key"))
		if err != nil {
			return err
		}
		if keys[i].aead, err = cipher.NewGCM(block); err != nil {
			return err
		}
	}
	r.keys.Store(&keys)
	return nil
}

// keep keeps a session under an id.
func (r *Resumption) keep(id [sessionIDLength]byte, s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < r.cfg.MaxSessions {
		r.ring = append(r.ring, id)
	} else {
		delete(r.byID, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % len(r.ring)
	}
	r.byID[id] = s
}

// find returns the session that a hello offers to resume, or nil.
func (r *Resumption) find(h *hello, now time.Time) (s *Session) {
	switch {
	case len(h.ticket) > 0:
		s = r.open(h.ticket)
	case len(h.sessionID) == sessionIDLength:
		r.mu.Lock()
		s = r.byID[[sessionIDLength]byte(h.sessionID)]
		r.mu.Unlock()
	}
	if s == nil || !now.Before(s.expires) {
		return nil
	}
	return s
}

// seal returns the session as a ticket, empty if it does not fit one.
func (r *Resumption) seal(s *Session) []byte {
	if len(s.identity) > maxTicketIdentity {
		return nil
	}
	key := &(*r.keys.Load())[0]
	out := make([]byte, ticketName+ticketNonce, maxTicket)
	copy(out, key.name[:])
	nonce := out[ticketName:]
	if _, err := rand.Read(nonce); err != nil {
		return nil
	}
	return key.aead.Seal(out, nonce, s.marshal(), key.name[:])
}

// open returns the session of a ticket, or nil.
func (r *Resumption) open(ticket []byte) *Session {
	if len(ticket) > maxTicket || len(ticket) < ticketName+ticketNonce+ticketTag {
		return nil
	}
	for _, key := range *r.keys.Load() {
		if [ticketName]byte(ticket) != key.name {
			continue
		}
		plain, err := key.aead.Open(nil, ticket[ticketName:ticketName+ticketNonce], ticket[ticketName+ticketNonce:], key.name[:])
		if err != nil {
			return nil
		}
		return unmarshalSession(plain)
	}
	return nil
}

const ticketVersion = 1

func (s *Session) marshal() []byte {
	extended := byte(0)
	if s.extended {
		extended = 1
	}
	b := []byte{ticketVersion, byte(s.suite >> 8), byte(s.suite)}
	b = append(b, s.master[:]...)
	b = append(b, extended, byte(s.auth))
	b = binary.BigEndian.AppendUint64(b, uint64(s.expires.Unix()))
	b = appendVector16(b, []byte(s.identity))
	return appendVector8(b, []byte(s.serverName))
}

func unmarshalSession(b []byte) *Session {
	c := cursor{b: b}
	version := c.uint8()
	s := &Session{suite: record.Suite(c.uint16())}
	copy(s.master[:], c.take(masterLength))
	s.extended, s.auth = c.uint8() == 1, Auth(c.uint8())
	if seconds := c.take(8); seconds != nil {
		s.expires = time.Unix(int64(binary.BigEndian.Uint64(seconds)), 0)
	}
	s.identity, s.serverName = string(c.vector16()), string(c.vector8())
	if !c.done() || version != ticketVersion || !s.suite.Known() {
		return nil
	}
	return s
}

// resumable returns the session that the client offers, if it may be resumed: with the same suite, the same name, the same kind
// of master secret (RFC 7627 section 5.3), and an identity that still has a key. Otherwise a full handshake follows.
func (s *Server) resumable(h *hello) *Session {
	if s.cfg.Resumption == nil || h.version > version12 || len(h.renegotiated) != 0 {
		return nil
	}
	session := s.cfg.Resumption.find(h, s.cfg.Clock())
	if session == nil || session.extended != h.extendedMaster || session.serverName != string(h.serverName) ||
		s.cfg.RequireExtendedMaster && !session.extended || !contains16(h.suites, uint16(session.suite)) || !s.enabled(session.suite) {
		return nil
	}
	if session.auth == AuthPSK {
		if s.cfg.PSK == nil {
			return nil
		}
		if _, known := s.cfg.PSK([]byte(session.identity)); !known {
			return nil
		}
	} else if session.auth == AuthNone && s.cfg.ClientAuth == ClientAuthNeeded {
		return nil
	}
	return session
}

func (s *Server) enabled(suite record.Suite) bool {
	for _, own := range s.cfg.Suites {
		if own == suite {
			return true
		}
	}
	return false
}

// resume makes our flight of an abbreviated handshake: ServerHello and Finished (RFC 5246 section 7.3).
func (p *Pending) resume(h *hello, session *Session) bool {
	p.resumed, p.known = true, true
	p.auth, p.identity = session.auth, session.identity
	p.secrets.master = session.master
	answer := p.serverHello(h, &choice{})
	answer.sessionID = h.sessionID
	p.appendMessage(typeServerHello, answer.appendServerHello(nil))
	if !p.derive() {
		return false
	}
	verify := p.secrets.verify(serverFinished, &p.transcript)
	p.out.finished = message(typeFinished, p.messages, verify[:])
	p.transcript.write(p.out.finished)
	return true
}

// promise decides how a full handshake can be resumed later: by a ticket, if the client takes one, or by an id.
func (p *Pending) promise(h *hello, answer *hello) bool {
	if p.owner.cfg.Resumption == nil {
		return true
	}
	p.serverName = string(h.serverName)
	if h.hasTicket {
		p.ticket, answer.hasTicket = true, true
		return true
	}
	id := make([]byte, sessionIDLength)
	if _, err := p.owner.cfg.Rand.Read(id); err != nil {
		return false
	}
	p.sessionID, answer.sessionID = id, id
	return true
}

// remember keeps the session, or returns the message with its ticket, as was promised.
func (p *Pending) remember() (ticket []byte) {
	cfg := &p.owner.cfg
	if !p.ticket && p.sessionID == nil {
		return nil
	}
	expires := cfg.Clock().Add(cfg.Resumption.cfg.Lifetime)
	if p.peer != nil && p.peer.leaf != nil && p.peer.leaf.NotAfter.Before(expires) {
		expires = p.peer.leaf.NotAfter
	}
	s := &Session{
		suite: p.secrets.suite, master: p.secrets.master, extended: p.extendedMaster, auth: p.auth, identity: p.identity,
		serverName: p.serverName, expires: expires,
	}
	if !p.ticket {
		cfg.Resumption.keep([sessionIDLength]byte(p.sessionID), s)
		return nil
	}
	hint := uint32(max(0, expires.Sub(cfg.Clock())/time.Second))
	body := appendVector16(binary.BigEndian.AppendUint32(nil, hint), cfg.Resumption.seal(s))
	ticket = message(typeNewSessionTicket, p.messages, body)
	p.messages++
	p.transcript.write(ticket)
	return ticket
}
