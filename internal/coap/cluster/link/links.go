package link

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/steering/rate"
)

// Times of the link. Those of the handshake are Californium's: it repeats a flight three times, after 500 ms each.
const (
	TickEvery   = 500 * time.Millisecond
	repetitions = 3

	spread      = 400 * time.Millisecond // handshakes begin at a random time within this
	retryAfter  = 2 * time.Second        // after a failed handshake; in addition a random time as long
	pendingLife = 10 * time.Second       // of a handshake that another node has begun
	finalGap    = 200 * time.Millisecond // between two repetitions of the final flight
	overlap     = 10 * time.Second       // earlier keys are accepted for this long
	keyLife     = 24 * time.Hour
	rollBefore  = time.Hour        // keys are replaced so long before they end, or a random time up to this earlier
	complainGap = 10 * time.Second // between two warnings about unknown addresses
	forgedLimit = 1 << 19          // records that fail to open: half of what CCM_8 may have; then the keys are replaced
)

// Bounds.
const (
	MaxPeers    = 1024 // addresses with a session, as in Californium
	maxPendings = 256  // handshakes that other nodes have begun
	maxSessions = 3    // with one node
	cidLength   = 6    // as in Californium

	// Addresses without a session get at most verifyBurst HelloVerifyRequests at once, and one every verifyEvery: whoever forges
	// a source has no more sent there.
	verifyEvery = 10 * time.Millisecond
	verifyBurst = 100
)

// Config is what New needs.
type Config struct {
	Identity, Secret []byte // the same on all nodes
	Node             uint32 // of this node; its low 8 bits are the first byte of connection ids on the link
	// Open lets nodes make sessions from addresses that Peer was not called for.
	Open bool
	Log  *slog.Logger // default: none
	Rand io.Reader    // default crypto/rand
}

// Stats counts since New; Sessions is current.
type Stats struct {
	Sessions   uint64 // nodes with a session
	Handshakes uint64 // completed
	Failed     uint64 // refused, or without an answer
	Refused    uint64 // records that did not open, and handshakes for which there was no room
}

// Links is the secured management link of one node.
type Links struct {
	cfg Config

	mu         sync.Mutex // of the fields below, and of those of all peers
	server     *handshake.Server
	scratch    record.Scratch
	peers      map[netip.AddrPort]*Peer
	pendings   map[netip.AddrPort]*pending
	complained time.Duration // when the last warning about an unknown address was logged
	clock      time.Duration
	verifies   rate.Bucket                  // of HelloVerifyRequests to unknown addresses
	buffer     [1400]byte                   // of a record that is sent
	left       map[netip.AddrPort]*left     // keys of the process before
	memory     map[netip.AddrPort]*leftKeys // entries of Keep's memory; nil without
	unused     []*leftKeys
	stats      Stats
}

// Peer is the link with one address.
type Peer struct {
	addr netip.AddrPort
	keys atomic.Pointer[Keys]

	// Of Links.mu.
	kept     bool // by the caller of Links.Peer, until Forget
	wanted   bool
	silent   bool       // a session that the other node seems to have lost
	sessions []*session // the preferred one first, mostly the newest
	before   *left      // keys of the process before; nil: none, or they have ended
	client   *attempt
	retryAt  time.Duration
	failed   bool // the last handshake did, which was logged
}

// session is an established DTLS session.
type session struct {
	association  *record.Association
	final        handshake.Final
	finalSent    time.Duration
	write, read  macKey
	writeKey     []byte // of which they are made
	readKey      []byte
	rollAt       time.Duration
	ends         time.Duration
	lastReceived time.Duration // when something has come in it last, or when it was made
	received     bool          // since the last Tick
	used         bool          // the other node has it
}

// attempt is a handshake that we have begun.
type attempt struct {
	client   *handshake.Client
	cid      []byte
	repeatAt time.Duration
}

// pending is a handshake that another node has begun.
type pending struct {
	*handshake.Pending
	ends time.Duration
}

// suites are those with the hash SHA-256, which the code needs. Those with an ephemeral exchange come first: who records a handshake
// of the others can try out short secrets.
func suites() []record.Suite {
	return []record.Suite{
		record.ECDHEPSKWithAES128GCMSHA256, record.ECDHEPSKWithAES128CCM8SHA256, record.PSKWithAES128GCMSHA256, record.PSKWithAES128CCM,
		record.PSKWithAES128CCM8,
	}
}

// New makes the link of a node. It returns an error without identity or secret.
func New(cfg Config) (*Links, error) {
	if len(cfg.Identity) == 0 || len(cfg.Secret) == 0 {
		return nil, errors.New("cluster link: identity and secret must not be empty")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	l := &Links{cfg: cfg, peers: map[netip.AddrPort]*Peer{}, pendings: map[netip.AddrPort]*pending{}, complained: -complainGap}
	var err error
	l.server, err = handshake.NewServer(handshake.ServerConfig{
		Config: l.handshake(),
		PSK:    func(identity []byte) ([]byte, bool) { return cfg.Secret, bytes.Equal(identity, cfg.Identity) },
		NewCID: l.newCID,
	})
	if err != nil {
		return nil, fmt.Errorf("cluster link: %w", err)
	}
	return l, nil
}

func (l *Links) handshake() handshake.Config {
	return handshake.Config{Suites: suites(), MACKeys: true, Rand: l.cfg.Rand}
}

// newCID makes a connection id for our end. Its first byte is ours, as in Californium.
func (l *Links) newCID() ([]byte, error) {
	id := make([]byte, cidLength)
	_, err := io.ReadFull(l.cfg.Rand, id)
	id[0] = byte(l.cfg.Node)
	return id, err
}

// random returns a random time shorter than limit.
func (l *Links) random(limit time.Duration) time.Duration {
	var b [8]byte
	if _, err := io.ReadFull(l.cfg.Rand, b[:]); err != nil {
		return limit / 2
	}
	return time.Duration(binary.BigEndian.Uint64(b[:]) % uint64(limit))
}

// Peer returns the link with an address, which stays until Forget. wanted: this node begins handshakes until there is a session. It
// returns nil if there are too many.
func (l *Links) Peer(addr netip.AddrPort, wanted bool) *Peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peer(addr)
	if p == nil {
		return nil
	}
	p.kept = true
	if wanted && !p.wanted {
		p.wanted = true
		p.retryAt = l.clock + l.random(spread)
	}
	return p
}

func (l *Links) peer(addr netip.AddrPort) *Peer {
	p := l.peers[addr]
	if p == nil && len(l.peers) < MaxPeers {
		p = &Peer{addr: addr, before: l.left[addr]}
		l.peers[addr] = p
		l.publish(p)
	}
	return p
}

// Forget ends the sessions with an address.
func (l *Links) Forget(addr netip.AddrPort) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.peers[addr]; p != nil {
		p.kept, p.wanted, p.client, p.sessions, p.before = false, false, nil, nil, nil
		l.forget(addr)
		l.publish(p)
		delete(l.peers, addr)
	}
	l.dropPending(addr)
}

// Addr is the node's address.
func (p *Peer) Addr() netip.AddrPort { return p.addr }

// Keys returns the keys for frames, or nil while there is neither a session nor one of the process before.
func (p *Peer) Keys() *Keys { return p.keys.Load() }

// publish makes the keys of the sessions visible to all workers, and stores them for the next process.
func (l *Links) publish(p *Peer) {
	p.collect()
	l.store(p)
	if len(p.sessions) == 0 && p.before == nil {
		p.keys.Store(nil)
		return
	}
	k := &Keys{of: slices.Clone(p.sessions)}
	if p.before != nil {
		k.write, k.before = p.before.write, p.before.read
	}
	if len(p.sessions) > 0 {
		k.write = p.current().write
	}
	for i, s := range p.sessions {
		k.read[i] = s.read
	}
	p.keys.Store(k)
}

// collect notes of which sessions frames have come.
func (p *Peer) collect() {
	if k := p.keys.Load(); k != nil {
		for i, s := range k.of {
			s.received = k.received[i].Swap(false) || s.received
		}
	}
}

// current is the session in which we send: the first one that the other node has shown to have.
func (p *Peer) current() *session {
	for _, s := range p.sessions {
		if s.used {
			return s
		}
	}
	return p.sessions[0]
}

// Renew makes a new session with a node that does not answer in the present one, which it may have lost.
func (l *Links) Renew(p *Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.silent, p.wanted = true, true
}

// Stats returns the counters.
func (l *Links) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	for _, p := range l.peers {
		if len(p.sessions) > 0 {
			s.Sessions++
		}
	}
	return s
}
