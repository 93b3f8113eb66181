package tcpscale

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Expect is what a client's connections must look like at the end, for tests of a balancer.
type Expect struct {
	Servers int      // exactly so many hold connections; 0: any number
	Spread  *float64 // most that a server's share may deviate from an even one, as a part of it (0.1: 10 %); nil: anything
}

// Validate says what cannot be meant.
func (e *Expect) Validate(c *ClientConfig) error {
	switch {
	case e.Servers == 0 && e.Spread == nil:
		return nil
	case e.Servers < 0 || e.Servers > maxPeers:
		return fmt.Errorf("%d expected servers: want 1 to %d", e.Servers, maxPeers)
	case e.Spread != nil && !(*e.Spread >= 0 && *e.Spread <= 1): // as that, NaN is refused
		return fmt.Errorf("expected spread of %v%%: want 0%% to 100%%", 100**e.Spread)
	case c.Plain:
		return errors.New("the plain stream names no servers: nothing to expect of them")
	}
	return nil
}

// Check looks at a client's last report. A server without a connection is not in it: it is missed only where Servers
// says how many there are. One connection more or less than an even share is never an error: they cannot be halved.
func (e *Expect) Check(r *Report) error {
	var held []Peer // a dead server's row stays, with none
	all := 0
	for _, p := range r.Peers {
		if p.Connections > 0 {
			held = append(held, p)
			all += p.Connections
		}
	}
	if e.Servers > 0 && len(held) != e.Servers {
		return fmt.Errorf("%d servers hold connections, %d were expected", len(held), e.Servers)
	}
	switch {
	case e.Spread == nil:
		return nil
	case r.OtherPeers > 0:
		return fmt.Errorf("more than %d servers: their spread is not known", maxPeers)
	case all == 0:
		return errors.New("no server holds a connection: there is no spread")
	}
	share := float64(all) / float64(len(held))
	p := slices.MaxFunc(held, func(a, b Peer) int {
		return cmp.Compare(math.Abs(float64(a.Connections)-share), math.Abs(float64(b.Connections)-share))
	})
	off := float64(p.Connections) - share
	if math.Abs(off) < 1 || math.Abs(off) <= *e.Spread*share {
		return nil
	}
	word := "more"
	if off < 0 {
		word = "less"
	}
	return fmt.Errorf("server %s has %d of %d connections, %.1f%% %s than an even share of %d servers; %g%% is allowed",
		p.ID, p.Connections, all, 100*math.Abs(off)/share, word, len(held), 100**e.Spread)
}
