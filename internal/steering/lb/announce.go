package lb

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Announce is an AnnounceSpec, compiled.
type Announce struct {
	MinHealthy int
	RequireAll bool            // an address of several services needs all of them
	Services   map[string]bool // nil: all
	Aggregates []netip.Prefix  // masked, in the order of the spec
	BGP        *BGP            // nil: none
	VRRP       []VRRP          // virtual routers
}

// BGP is a BGPSpec, compiled.
type BGP struct {
	AS                 uint32
	RouterID           netip.Addr
	Listen             netip.AddrPort // invalid: only outgoing connections
	NextHop4, NextHop6 netip.Addr     // invalid: this end of the session
	Neighbours         []Neighbour
	Prepends           int
	Communities        []Community
	LocalPreference    uint32
	GracefulShutdown   time.Duration
	ReportAfter        time.Duration
}

// Neighbour is a NeighbourSpec, compiled. It is comparable.
type Neighbour struct {
	Address, LocalAddress     netip.Addr
	AS                        uint32
	Port                      uint16
	PasswordFile, PasswordEnv string
	HoldTime                  time.Duration
	Multihop                  uint8 // 0: off
	TTLSecurity               bool
	PrefixLimit               uint32
	BFD                       BFD // Multiplier 0: off
}

// BFD is a BFDSpec, compiled.
type BFD struct {
	Interval   time.Duration
	Multiplier uint8
}

// AnnounceRequire says how many services of an address must be able to serve.
type AnnounceRequire uint8

const (
	RequireAny AnnounceRequire = iota
	RequireAll
)

// UnmarshalText reads any or all.
func (r *AnnounceRequire) UnmarshalText(text []byte) (err error) {
	*r, err = parseName[AnnounceRequire]("requirement", string(text), []string{RequireAny: "any", RequireAll: "all"})
	return err
}

// Community is a BGP community: two numbers of 16 bits (RFC 1997), or a large one of three with 32 bits (RFC 8092).
type Community struct {
	Large   bool
	A, B, C uint32
}

func namedCommunities() map[string]uint32 {
	return map[string]uint32{
		"graceful-shutdown": 0xFFFF0000, "accept-own": 0xFFFF0001, "blackhole": 0xFFFF029A, "no-export": 0xFFFFFF01,
		"no-advertise": 0xFFFFFF02, "no-export-subconfed": 0xFFFFFF03, "no-peer": 0xFFFFFF04,
	}
}

// Number is a community of RFC 1997 as one number.
func (c Community) Number() uint32 { return c.A<<16 | c.B }

// String writes the numbers, or the name.
func (c Community) String() string {
	if c.Large {
		return fmt.Sprintf("%d:%d:%d", c.A, c.B, c.C)
	}
	for name, number := range namedCommunities() {
		if c.Number() == number {
			return name
		}
	}
	return fmt.Sprintf("%d:%d", c.A, c.B)
}

// UnmarshalText reads 64512:100, 64512:1:2 or a name.
func (c *Community) UnmarshalText(text []byte) error {
	if number, ok := namedCommunities()[string(text)]; ok {
		*c = Community{A: number >> 16, B: number & 0xFFFF}
		return nil
	}
	parts := strings.Split(string(text), ":")
	bits := map[int]int{2: 16, 3: 32}[len(parts)]
	numbers := make([]uint32, 3)
	for i, part := range parts {
		value, err := strconv.ParseUint(part, 10, max(bits, 1))
		if bits == 0 || err != nil {
			return fmt.Errorf("%q is no community; write 64512:100, a large one such as 64512:1:2, or no-export, no-advertise, no-peer, accept-own, blackhole, graceful-shutdown", text)
		}
		numbers[i] = uint32(value)
	}
	*c = Community{Large: len(parts) == 3, A: numbers[0], B: numbers[1], C: numbers[2]}
	return nil
}

// Announces reports whether the addresses of a service are announced.
func (a *Announce) Announces(service *Service) bool {
	return a.Services == nil || a.Services[service.Name]
}

// Addresses returns the prefixes that the packets of a service are sent to: those of its VIPs, and of its flow rules where these name
// any, ordered.
func (s *Service) Addresses() []netip.Prefix {
	var all []netip.Prefix
	for _, vip := range s.VIPs {
		all = append(all, vip.Prefix)
	}
	for _, rule := range s.Rules {
		for _, p := range rule.Destinations {
			if p.Bits() > 0 {
				all = append(all, p)
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// Healthy counts the backends that serve flows, new or old ones: they are not down and their probes do not fail.
func (s *Service) Healthy() (n int) {
	for _, b := range s.Backends {
		if !s.Down && b.State != Down && !b.Failing && !b.Refuses() {
			n++
		}
	}
	return n
}
