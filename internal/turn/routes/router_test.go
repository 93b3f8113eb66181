package routes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/internal/control/names"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// resolver is a name server in memory.
type resolver struct {
	mu      sync.Mutex
	answers map[string][]netip.Addr
	err     error
	delay   time.Duration
	queries map[string]int
	own     []netip.Addr
	ownErr  error
}

func (r *resolver) set(name string, addresses ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = nil
	if r.answers == nil {
		r.answers, r.queries = map[string][]netip.Addr{}, map[string]int{}
	}
	r.answers[name] = nil
	for _, a := range addresses {
		r.answers[name] = append(r.answers[name], netip.MustParseAddr(a))
	}
}

func (r *resolver) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *resolver) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queries[name]
}

func (r *resolver) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	r.queries[name]++
	answer, err, delay := r.answers[name], r.err, r.delay
	r.mu.Unlock()
	if delay > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(delay):
		}
	}
	return answer, err
}

// routed is a Router that runs over a resolver, with one listener routed to one name.
type routed struct {
	*Router
	resolver *resolver
	changes  int
}

func start(t *testing.T, r *resolver) *routed {
	t.Helper()
	it := &routed{resolver: r}
	it.Router = NewRouter(Options{Lookup: r.lookup, Changed: func(*Table) { it.changes++ }, Own: func() ([]netip.Addr, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.own, r.ownErr
	}})
	netlabtest.Run(t, it.Run)
	return it
}

func (it *routed) admits(peer string) bool {
	_, ok := it.Table().Admit(1, false, netip.MustParseAddrPort(peer))
	return ok
}

func specOf(t *testing.T, refresh time.Duration, texts ...string) Spec {
	return Spec{
		Clusters:  []Cluster{{ID: 1, Name: "c", Endpoints: endpoints(t, texts...), Refresh: refresh}},
		Listeners: []Listener{{ID: 1, Routes: []string{"c"}}},
	}
}

func TestNamesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := &resolver{}
		dns.set("media.example", "192.0.2.1", "192.0.2.2")
		it := start(t, dns)
		if it.admits("192.0.2.1:1") {
			t.Error("admitted before the first Apply")
		}
		table, err := it.Apply(t.Context(), specOf(t, 5*time.Second, "media.example:5000"))
		if err != nil || table != it.Table() {
			t.Fatal(err)
		}
		if !it.admits("192.0.2.1:5000") || !it.admits("192.0.2.2:0") || it.admits("192.0.2.1:5001") || it.admits("192.0.2.3:5000") {
			t.Error("the first answer does not hold when Apply returns")
		}
		dns.set("media.example", "192.0.2.2", "192.0.2.3")
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := dns.count("media.example"); n != 1 || !it.admits("192.0.2.1:5000") {
			t.Errorf("looked up %d times within the refresh interval", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if it.admits("192.0.2.1:5000") || !it.admits("192.0.2.2:5000") || !it.admits("192.0.2.3:5000") || it.changes != 1 {
			t.Errorf("after a refresh: %+v, %d changes", it.Names(), it.changes)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := dns.count("media.example"); it.changes != 1 || n < 10 || n > 15 {
			t.Errorf("%d changes, %d look-ups in a minute of the same answer", it.changes, n)
		}
	})
}

func TestLastGoodAddressesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := &resolver{}
		dns.set("media.example", "192.0.2.1")
		it := start(t, dns)
		if _, err := it.Apply(t.Context(), specOf(t, time.Second, "media.example")); err != nil {
			t.Fatal(err)
		}
		for _, failure := range []error{errors.New("broken"), &net.DNSError{Err: "server misbehaving", IsTemporary: true}} {
			dns.fail(failure)
			time.Sleep(time.Hour)
			synctest.Wait()
			status := it.Names()[0]
			if !it.admits("192.0.2.1:1") || status.Error != failure.Error() || status.Failures < 1000 {
				t.Errorf("%v: %+v", failure, status)
			}
		}
		// A server that does not answer at all.
		dns.mu.Lock()
		dns.delay = time.Hour
		dns.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !it.admits("192.0.2.1:1") {
			t.Error("a silent server closes an address")
		}
		// "No such name" counts from the third time on.
		dns.mu.Lock()
		dns.delay = 0
		dns.mu.Unlock()
		dns.set("media.example")
		time.Sleep(3500 * time.Millisecond) // at worst the look-up that still waits ends now
		synctest.Wait()
		before := dns.count("media.example")
		for dns.count("media.example") < before+3 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if it.admits("192.0.2.1:1") {
			t.Errorf("a name that is gone keeps its address: %+v", it.Names())
		}
		dns.set("media.example", "192.0.2.9")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !it.admits("192.0.2.9:1") || it.Names()[0].Error != "" {
			t.Errorf("not back: %+v", it.Names())
		}
	})
}

func TestASlowNameHoldsApplyForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := &resolver{delay: time.Hour}
		dns.set("media.example", "192.0.2.1")
		it := start(t, dns)
		begin := time.Now()
		if _, err := it.Apply(t.Context(), specOf(t, time.Second, "media.example", "10.0.0.0/8")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != names.Timeout {
			t.Errorf("Apply took %s of virtual time", took)
		}
		if !it.admits("10.0.0.1:1") || it.admits("192.0.2.1:1") {
			t.Error("what does not depend on the name is not open")
		}
		dns.mu.Lock()
		dns.delay = 0
		dns.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !it.admits("192.0.2.1:1") {
			t.Error("the late answer is not taken")
		}
	})
}

func TestOwnAddressesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &resolver{own: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
		it := start(t, host)
		if _, err := it.Apply(t.Context(), specOf(t, 0, "0.0.0.0/0")); err != nil {
			t.Fatal(err)
		}
		if it.admits("192.0.2.1:1") || !it.admits("192.0.2.2:1") {
			t.Error("own address at the start")
		}
		host.mu.Lock()
		host.own = []netip.Addr{netip.MustParseAddr("192.0.2.2")}
		host.mu.Unlock()
		time.Sleep(ownRefresh + time.Second)
		synctest.Wait()
		if !it.admits("192.0.2.1:1") || it.admits("192.0.2.2:1") {
			t.Error("the new own address is admitted")
		}
		host.mu.Lock()
		host.own, host.ownErr = nil, errors.New("no netlink")
		host.mu.Unlock()
		time.Sleep(ownRefresh + time.Second)
		synctest.Wait()
		if it.admits("192.0.2.2:1") {
			t.Error("a failure to read own addresses opens the last ones")
		}
		if _, err := it.Apply(t.Context(), specOf(t, 0, "0.0.0.0/0")); err == nil {
			t.Error("a Spec applies without knowledge of own addresses")
		}
	})
}

func TestABadSpecChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := &resolver{}
		dns.set("a.example", "192.0.2.1")
		it := start(t, dns)
		if _, err := it.Apply(t.Context(), specOf(t, 0, "a.example")); err != nil {
			t.Fatal(err)
		}
		bad := specOf(t, 0, "10.0.0.0/8")
		bad.Listeners[0].Routes = []string{"nowhere"}
		if _, err := it.Apply(t.Context(), bad); err == nil {
			t.Error("a route to nowhere applies")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !it.admits("192.0.2.1:1") || it.admits("10.0.0.1:1") || len(it.Names()) != 1 {
			t.Error("the bad Spec left something behind")
		}
		// A name that no cluster has any more is looked up no more.
		if _, err := it.Apply(t.Context(), specOf(t, 0, "10.0.0.0/8")); err != nil {
			t.Fatal(err)
		}
		before := dns.count("a.example")
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(it.Names()) != 0 || dns.count("a.example") != before {
			t.Error("a removed name is still looked up")
		}
	})
}

func TestAddressesOfANameAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []string
		for i := range MaxAddresses + 44 {
			all = append(all, fmt.Sprintf("198.18.%d.%d", i/256, i%256))
		}
		dns := &resolver{}
		dns.set("many.example", append(all, "::ffff:198.18.0.0")...) // the last is the first again
		it := start(t, dns)
		if _, err := it.Apply(t.Context(), specOf(t, 0, "many.example")); err != nil {
			t.Fatal(err)
		}
		status := it.Names()[0]
		if len(status.Addresses) != MaxAddresses || status.Dropped != 44 || !it.admits("198.18.0.255:1") || it.admits("198.18.1.0:1") {
			t.Errorf("%d addresses, %d dropped", len(status.Addresses), status.Dropped)
		}
	})
}
