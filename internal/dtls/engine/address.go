package engine

import (
	"crypto/rand"
	"crypto/subtle"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// An address is proven when the peer has returned something that only a receiver at that address can know: the cookie of a
// DTLS handshake, a path_response (RFC 9853), or what the Handler accepts (an Echo option of RFC 9175, an acknowledgement).
// The engine sends at most Config.Amplification times the bytes of UDP payload that came from an unproven address to it. The
// limit covers everything: answers, retransmissions, alerts and challenges. The address of a session is unproven from the
// moment it changes; the address of a plain peer is unproven from its first datagram, and again provenLife after its proof.

// provenLife is how long the proof of a plain peer's address holds: somebody else may have the address later. A session
// needs no such limit, for its records prove who sends them.
const provenLife = 10 * time.Minute

// Messages of the return routability check (RFC 9853 section 4).
const (
	pathChallenge = 0
	pathResponse  = 1

	pathCookie        = 8              // bytes
	pathMessageLength = 1 + pathCookie // type and cookie
	// pathTimeout is when a challenge may be repeated first (RFC 9853, timer choice), doubled each time.
	pathTimeout    = time.Second
	maxPathBackoff = 6
)

// Proven reports whether the peer's address has been proven, so that answers of any size may be sent to it.
func (p *Peer) Proven() bool { return !p.unproven }

// Routable reports whether the return routability check was negotiated. If it was, the engine proves the address without the
// Handler.
func (p *Peer) Routable() bool { return p.routable }

// Budget is how many bytes of payload may be sent to the peer in one message now. It is MaxPayload for a proven address. For
// an unproven address it may be less, and may be negative.
func (p *Peer) Budget() int {
	if p.unproven {
		return min(p.budget-p.Overhead(), MaxPayload)
	}
	return MaxPayload
}

// Overhead is the maximum number of bytes that a record adds to its payload; 0 in plain mode.
func (p *Peer) Overhead() int {
	if p.association == nil {
		return 0
	}
	return p.association.HeadRoom() + p.association.TailRoom()
}

// Validate marks the peer's address as proven, because the peer has returned something that it can only have received there.
// It lifts the amplification limit.
func (w *Worker) Validate(p *Peer) {
	if p.closed || !p.unproven {
		return
	}
	w.stats.AddressesProven++
	p.unproven, p.budget = false, 0
	p.keepPath()
	if p.association == nil {
		p.provenUntil = w.now + provenLife
		w.plainPeers.proven(p)
	}
}

// credit adds what has come from the peer's address to the budget of that address.
func (w *Worker) credit(p *Peer, received int) { p.budget += w.cfg.Amplification * received }

// charge subtracts n bytes from the budget of an unproven address. If the budget is too small, it counts that instead and
// returns false.
func (w *Worker) charge(p *Peer, n int) bool {
	if !p.unproven {
		return true
	}
	if n > p.budget {
		w.stats.Amplified++
		return false
	}
	p.budget -= n
	return true
}

// receivedFrom notes where the newest record came from (RFC 9146 section 6).
func (w *Worker) receivedFrom(p *Peer, from source) {
	p.router = from.router
	addr, local := p.addr, p.local
	defer func() {
		if p.addr != addr || p.local != local {
			p.keepPath()
		}
	}()
	// A frame of the cluster does not contain our local address. The client still uses the earlier one, unless it has
	// changed the address family.
	if from.local.IsValid() || p.local.Is4() != from.addr.Addr().Is4() {
		p.local = from.local
	}
	if p.addr == from.addr {
		return
	}
	if p.byAddress {
		return // the peer was found by this address, so the address is the same
	}
	w.stats.AddressChanges++
	p.prev, p.addr = p.addr, from.addr
	p.unproven, p.budget = true, 0
	p.path.due, p.path.sent = 0, 0
}

// pathCheck is the state of a return routability check.
type pathCheck struct {
	cookie [pathCookie]byte
	due    time.Duration // when the next challenge may be sent
	sent   uint8         // challenges to this address
}

// challenge sends a path_challenge to the peer's new address (RFC 9853, basic procedure). There is no timer: if the
// challenge or its answer is lost, a later record from there triggers the next one.
func (w *Worker) challenge(p *Peer) {
	if w.now < p.path.due {
		return
	}
	_, _ = rand.Read(p.path.cookie[:]) // never fails (crypto/rand)
	p.path.due = w.now + pathTimeout<<min(p.path.sent, maxPathBackoff)
	p.path.sent = min(p.path.sent+1, maxPathBackoff)
	if w.sendPath(p, pathChallenge, p.path.cookie[:]) {
		w.stats.PathChallenges++
	}
}

func (w *Worker) sendPath(p *Peer, kind byte, cookie []byte) bool {
	b := w.out.acquire()
	start := headRoom(p)
	b[start] = kind
	copy(b[start+1:], cookie)
	return w.transmit(p, record.RoutabilityCheck, b, start, pathMessageLength)
}

// routability handles a message of the return routability check. It ignores unknown messages, and path_drop as well:
// path_drop answers a challenge to the earlier address, and the engine sends none there.
func (w *Worker) routability(p *Peer, payload []byte, from source) {
	if !p.routable || len(payload) != pathMessageLength {
		w.stats.Malformed++
		return
	}
	switch payload[0] {
	case pathChallenge: // the answer has to go where the challenge came from
		if from.addr == p.addr {
			w.sendPath(p, pathResponse, payload[1:])
		}
	case pathResponse:
		if p.path.sent > 0 && subtle.ConstantTimeCompare(payload[1:], p.path.cookie[:]) == 1 {
			w.Validate(p)
		}
	}
}
