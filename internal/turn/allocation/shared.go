package allocation

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Shared is what the tables of all workers have in common: the policy, the users' quotas, the rate limits, reserved
// ports and the source of ids. Any goroutine may call its methods at any time.
type Shared struct {
	policy atomic.Pointer[Policy]
	rates  *rates

	mu          sync.Mutex // guards the fields below; taken for requests only, never for packets
	random      *rand.ChaCha8
	users       map[string]int
	ids         map[uint64]struct{} // of the allocations of all tables
	total       int
	reserved    map[uint64]reservation
	connections uint32 // connection ids given out
	scramble    [4]uint32
}

// reservation is a port reserved for the bearer of its token (RFC 8656, section 7.2). It counts as an allocation.
type reservation struct {
	token   uint64
	user    string
	relay   netip.AddrPort
	expires int64
}

// Stats counts what all tables hold together.
type Stats struct {
	Allocations int    `json:"allocations"` // including reserved ports
	Users       int    `json:"users"`
	Reserved    int    `json:"reserved_ports"`
	Displaced   uint64 `json:"rate_limit_displaced"` // unproven sources evicted because the table of rates was full
	// Withheld counts suppressed answers to requests without valid credentials, by the limit that was reached.
	Withheld WithheldStats `json:"answers_withheld"`
}

// WithheldStats counts suppressed answers, by the field of RateLimit that was reached.
type WithheldStats struct {
	Unproven uint64 `json:"unauthenticated" metric:"_,limit=unauthenticated"`
	Bindings uint64 `json:"bindings" metric:"_,limit=bindings"`
	Total    uint64 `json:"unauthenticated_total" metric:"_,limit=unauthenticated_total"`
	Proven   uint64 `json:"proven" metric:"_,limit=proven"`
}

// NewShared checks the policy, sets its defaults and puts it in force. seed must be random and secret, because ids,
// tokens and the table of rates depend on it.
func NewShared(p Policy, seed [32]byte) (*Shared, error) {
	full, err := p.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Shared{random: rand.NewChaCha8(seed), users: map[string]int{}, ids: map[uint64]struct{}{}, reserved: map[uint64]reservation{}}
	for i := range s.scramble {
		s.scramble[i] = uint32(s.random.Uint64())
	}
	s.rates = newRates(full.Unauthenticated.PrefixesAtOnce, s.random)
	s.rates.set(full.Unauthenticated)
	s.policy.Store(full)
	return s, nil
}

// SetPolicy checks and replaces the policy. Each table's SetPolicy must be called afterwards, by its own worker.
func (s *Shared) SetPolicy(p Policy) error {
	full, err := p.withDefaults()
	if err != nil {
		return err
	}
	s.rates.set(full.Unauthenticated)
	s.policy.Store(full)
	return nil
}

// Policy returns the policy in force, with defaults. It must not be changed.
func (s *Shared) Policy() *Policy { return s.policy.Load() }

// Stats returns a snapshot.
func (s *Shared) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Allocations: s.total, Users: len(s.users), Reserved: len(s.reserved), Displaced: s.rates.displaced.Load(), Withheld: s.rates.withheld.stats()}
}

// acquire counts n more allocations of a user, either all or none; with force also beyond the quota.
func (s *Shared) acquire(user string, n int, force bool) bool {
	q := &s.Policy().Quotas
	s.mu.Lock()
	defer s.mu.Unlock()
	if !force && (s.total > q.Allocations-n || s.users[user] > q.AllocationsPerUser-n) {
		return false
	}
	s.total += n
	s.users[user] += n
	return true
}

// release uncounts one allocation.
func (s *Shared) release(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(user)
}

func (s *Shared) releaseLocked(user string) {
	s.total--
	if s.users[user]--; s.users[user] <= 0 {
		delete(s.users, user)
	}
}

// reserve holds a port for the bearer of the token that it returns. The caller has acquired its quota.
func (s *Shared) reserve(r reservation) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r.token == 0 || s.reserved[r.token].token != 0 {
		r.token = s.random.Uint64()
	}
	s.reserved[r.token] = r
	return r.token
}

// waits reports whether a reservation has not been taken yet.
func (s *Shared) waits(token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserved[token].token != 0
}

// take ends a reservation for its user. The user's allocation replaces it in the quota, and the caller releases it.
// An expired reservation is left to the table that made it.
func (s *Shared) take(token uint64, user string, now int64) (relay netip.AddrPort, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.reserved[token]
	if !ok || r.user != user || r.expires <= now {
		return relay, false
	}
	delete(s.reserved, token)
	return r.relay, true
}

// expireReservation ends a reservation that no request took. It returns false if it was taken.
func (s *Shared) expireReservation(token uint64) (relay netip.AddrPort, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.reserved[token]
	if !ok {
		return relay, false
	}
	delete(s.reserved, token)
	s.releaseLocked(r.user)
	return r.relay, true
}

// takeID returns an id for a new allocation that no allocation of any table has: the wanted one (of a record) if it
// is free, else a random number below 2^53, which every JSON reader can represent.
func (s *Shared) takeID(wanted uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := wanted
	for _, taken := s.ids[id]; taken || id == 0; _, taken = s.ids[id] {
		id = s.random.Uint64()>>11 | 1
	}
	s.ids[id] = struct{}{}
	return id
}

func (s *Shared) giveID(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

func (s *Shared) transaction() (id [12]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	binary.BigEndian.PutUint64(id[:], s.random.Uint64())
	binary.BigEndian.PutUint32(id[8:], uint32(s.random.Uint64()))
	return id
}

// connectionID returns every number once in 2^32 calls, in an order that clients cannot guess: a counter through four
// rounds of a Feistel network.
func (s *Shared) connectionID() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
	left, right := uint16(s.connections>>16), uint16(s.connections)
	for _, k := range s.scramble {
		mixed := (uint32(right) ^ k) * 0x9E3779B1
		left, right = right, left^uint16(mixed>>16)
	}
	return uint32(left)<<16 | uint32(right)
}
