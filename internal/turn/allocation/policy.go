package allocation

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unicode/utf8"
)

// Policy is what a server allows. It is immutable: change a copy and pass it to Shared.SetPolicy.
type Policy struct {
	Realm    string // at most MaxRealm bytes; "" is "weir"
	Software string // the SOFTWARE attribute of answers, at most 128 bytes; "" sends none
	Auth     Auth
	// NonceKeys sign nonces. The first one signs and all of them verify, so that a key can be changed without
	// answering 438 to all clients. There must be at least one of 16 bytes or more, unless Auth.Mode is AuthNone.
	// Processes that share keys accept each other's nonces.
	NonceKeys       [][]byte
	Quotas          Quotas
	Unauthenticated RateLimit
	Lifetimes       Lifetimes
	// Admit returns whether a listener's clients may reach a peer, and through which cluster. Port 0 stands for any
	// port. All workers call it concurrently, for requests and for the first packets of a peer's port. With nil, no
	// peer is admitted.
	Admit func(listener uint16, tcp bool, peer netip.AddrPort) (cluster uint16, ok bool)
	// Wall is the time in Unix nanoseconds for the expiry of ephemeral credentials. With nil, the tables' time is
	// used.
	Wall func() int64
	// Draining refuses new allocations: with 300 and Alternate if that is valid and of the client's family, else with
	// 508.
	Draining  bool
	Alternate netip.AddrPort
}

// AuthMode is how clients authenticate.
type AuthMode uint8

// The modes. The zero mode refuses all clients, so that a missing setting allows nothing.
const (
	AuthStatic    AuthMode = iota // Users
	AuthEphemeral                 // Secrets: user "expiry[:userid]", password base64(HMAC-SHA1(secret, user))
	AuthNone                      // STUN Binding only: everything else is answered 400
)

// Auth is the valid credentials.
type Auth struct {
	Mode    AuthMode
	Users   map[string]string // AuthStatic: name to password
	Secrets []string          // AuthEphemeral: any of them verifies, so that a secret can be changed
	// SHA256 offers PASSWORD-ALGORITHMS and MESSAGE-INTEGRITY-SHA256 (RFC 8489, section 9.2) to clients whose
	// requests are large enough for the longer answer. SHA-1 and MD5 remain allowed.
	SHA256 bool
}

// Quotas limit what clients may hold. A field of 0 means the default in brackets, a negative one no limit.
type Quotas struct {
	Allocations        int     // in total of all workers (no limit)
	AllocationsPerUser int     // by user id (no limit)
	Permissions        int     // per allocation (256), 4096 at most
	Channels           int     // per allocation (256), 4096 at most
	Connections        int     // RFC 6062 connections per allocation (64)
	Bandwidth          float64 // user data of both directions in bytes per second per allocation (no limit)
	Burst              int     // bytes that may pass at once (a quarter second of Bandwidth, at least 64 KiB)
}

// RateLimit limits the answers to requests without valid credentials. A field of 0 means the default in brackets, a
// negative rate no limit. A source is an IPv4 address or an IPv6 /64. It is proven for ten minutes after it returned a
// nonce, and while it uses TCP, TLS or DTLS. The table of sources has a fixed size and this order of eviction:
// unproven sources are evicted first, and of those the one whose budgets are nearest to full (Stats.Displaced counts those that were not
// full). A proven source is evicted only for another proven one, if seven of the eight entries of a set are proven; then the one that
// was silent longest is evicted.
type RateLimit struct {
	PerPrefix      float64 // answers per second for one unproven source, but for Binding requests (100)
	PrefixBurst    int     // (1000)
	Bindings       float64 // answers per second to Binding requests of one unproven source (2000), twice as many at once
	Proven         float64 // answers per second for one proven source (20000)
	Total          float64 // answers per second to all unproven sources, once for Binding requests and once for others (50000)
	TotalBurst     int     // (50000)
	PrefixesAtOnce int     // size of the table of sources, read by NewShared only (131072; 48 bytes each)
}

// Lifetimes are how long things last. 0 means the default in brackets.
type Lifetimes struct {
	Default    time.Duration // an allocation whose client requests none or less (10 min)
	Max        time.Duration // the longest (1 h)
	Permission time.Duration // (5 min)
	Channel    time.Duration // (10 min)
	Nonce      time.Duration // a nonce, then the answer is 438 (1 h)
}

const maxText = 128

// MaxRealm is the longest realm in bytes. With it, the answer to a client's first Allocate, which has 28 bytes with REQUESTED-TRANSPORT,
// contains realm and nonce and is at most three times as long.
const MaxRealm = 3*(headerSize+attributeHeader+4) - headerSize - (attributeHeader + 4) - attributeHeader - (attributeHeader + shortNonceSize)

// withDefaults checks a policy and replaces zero values by the defaults.
func (p Policy) withDefaults() (*Policy, error) {
	if p.Realm == "" {
		p.Realm = "weir"
	}
	if len(p.Realm) > MaxRealm || len(p.Software) > maxText || !utf8.ValidString(p.Realm) {
		return nil, fmt.Errorf("realm is not UTF-8 of at most %d bytes, or software is longer than %d", MaxRealm, maxText)
	}
	if err := p.checkAuth(); err != nil {
		return nil, err
	}
	q := &p.Quotas
	q.Allocations, q.AllocationsPerUser = orUnlimited(q.Allocations), orUnlimited(q.AllocationsPerUser)
	q.Permissions, q.Channels = min(limit(q.Permissions, 256), maxEntries), min(limit(q.Channels, 256), maxEntries)
	q.Connections = limit(q.Connections, 64)
	if q.Burst <= 0 {
		q.Burst = max(int(q.Bandwidth/4), 64<<10)
	}
	u := &p.Unauthenticated
	u.PerPrefix, u.Bindings = limitRate(u.PerPrefix, 100), limitRate(u.Bindings, 2000)
	u.Proven, u.Total = limitRate(u.Proven, 20000), limitRate(u.Total, 50000)
	u.PrefixBurst, u.TotalBurst = max(limit(u.PrefixBurst, 1000), 1), max(limit(u.TotalBurst, 50000), 1)
	u.PrefixesAtOnce = limit(u.PrefixesAtOnce, 131072)
	return &p, p.Lifetimes.fill()
}

func (p *Policy) checkAuth() error {
	if p.Auth.Mode > AuthNone {
		return fmt.Errorf("authentication mode %d is unknown", p.Auth.Mode)
	}
	if p.Auth.Mode == AuthNone {
		return nil
	}
	if len(p.NonceKeys) == 0 {
		return errors.New("a policy with authentication needs a nonce key")
	}
	for _, key := range p.NonceKeys {
		if len(key) < 16 {
			return errors.New("a nonce key is shorter than 16 bytes")
		}
	}
	if _, ok := p.Auth.Users[""]; ok {
		return errors.New("a user without a name")
	}
	for _, secret := range p.Auth.Secrets {
		if secret == "" {
			return errors.New("an empty secret lets everybody in")
		}
	}
	return nil
}

func (l *Lifetimes) fill() error {
	for _, f := range []struct {
		d        *time.Duration
		standard time.Duration
	}{{&l.Default, 10 * time.Minute}, {&l.Max, time.Hour}, {&l.Permission, 5 * time.Minute}, {&l.Channel, 10 * time.Minute}, {&l.Nonce, time.Hour}} {
		if *f.d == 0 {
			*f.d = f.standard
		}
		if *f.d < time.Second || *f.d > 24*time.Hour {
			return fmt.Errorf("lifetime %v is not between 1 s and 24 h", *f.d)
		}
	}
	l.Max = max(l.Max, l.Default)
	return nil
}

const unlimited = int(^uint(0) >> 1)

func orUnlimited(n int) int { return limit(n, unlimited) }

func limit(n, standard int) int {
	switch {
	case n == 0:
		return standard
	case n < 0:
		return unlimited
	}
	return n
}

func limitRate(r, standard float64) float64 {
	if r == 0 {
		return standard
	}
	return max(r, 0) // 0 from here on: no limit
}
