package cluster

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The addresses of names are followed: a name that resolves late, or to others later, and one that does not resolve any more, whose node
// is searched for where it was.
func TestNamesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &network{t: t}
		n := w.start(1, at(1), func(cfg *Config) { cfg.Group = []string{"nodes.example:5884", "192.0.2.9:5884"} })
		var answer atomic.Pointer[[]netip.Addr]
		n.names.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
			if address, err := netip.ParseAddr(host); err == nil {
				return []netip.Addr{address}, nil
			}
			if found := answer.Load(); found != nil {
				return *found, nil
			}
			return nil, errors.New("no such host")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		check := func(want ...string) {
			t.Helper()
			time.Sleep(resolveEvery + time.Second) // in the time of synctest
			w.run(12 * time.Second)                // after which addresses are forgotten that are silent and not listed
			var got []string
			for _, row := range n.Status()[1:] {
				got = append(got, row.Management)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("searched at %v, want %v", got, want)
			}
		}
		answer.Store(nil)
		check("192.0.2.9:5884")
		answer.Store(&[]netip.Addr{at(1).Addr(), at(2).Addr(), at(3).Addr()}) // its own among them
		check("192.0.2.2:5884", "192.0.2.3:5884", "192.0.2.9:5884")
		answer.Store(&[]netip.Addr{at(3).Addr()})
		check("192.0.2.3:5884", "192.0.2.9:5884")
		answer.Store(nil)
		check("192.0.2.3:5884", "192.0.2.9:5884")
		if got := n.logged("level=WARN", "does not resolve", "nodes.example"); got < 1 || got > 2 { // once each time that it begins
			t.Errorf("logged %d times\n%s", got, n.log.String())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
