package control

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
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
	answer  []netip.Addr
	err     error
	lookups map[string]int
}

func (r *resolver) set(err error, addresses ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.err = nil, err
	for _, a := range addresses {
		r.answer = append(r.answer, netip.MustParseAddr(a))
	}
}

func (r *resolver) lookup(_ context.Context, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lookups == nil {
		r.lookups = map[string]int{}
	}
	r.lookups[name]++
	return r.answer, r.err
}

const webByName = `maglev_size: 251
services:
- name: s
  vips: [{address: 192.0.2.1, protocol: udp, port: 1}]
  backends:
  - {name: web, host: web.example.com}
`

func backends(l *Loop) string {
	var all []string
	for _, b := range l.Snapshot().Services[0].Backends {
		all = append(all, b.Name)
	}
	return strings.Join(all, " ")
}

// Backends follow a name: its addresses are there before the first packet, stay while the resolver fails, and go after three answers "no
// such name".
func TestBackendsByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns, m := &resolver{}, &memory{}
		dns.set(nil, "10.0.0.2", "10.0.0.1", "2001:db8::1")
		l := New(m, Options{Lookup: dns.lookup})
		if err := l.Load("f", []byte(webByName)); err != nil {
			t.Fatal(err)
		}
		expect := func(when, want string, generation uint64) {
			t.Helper()
			if got := backends(l); got != want || l.Snapshot().Generation != generation {
				t.Errorf("%s: backends %q in generation %d, want %q in %d", when, got, l.Snapshot().Generation, want, generation)
			}
		}
		two := "web:10.0.0.1 web:10.0.0.2"
		expect("before Run", two, 1)
		netlabtest.Run(t, func(ctx context.Context) error { return l.Run(ctx, nil, nil) })
		refreshed := func(times int) {
			time.Sleep(time.Duration(times)*names.DefaultRefresh + time.Second)
			synctest.Wait()
		}
		dns.set(nil, "10.0.0.1", "10.0.0.2", "2001:db8::1")
		refreshed(2)
		expect("another order", two, 1)
		dns.set(errors.New("server misbehaving"))
		refreshed(10)
		expect("the resolver fails", two, 1)
		if s := l.Status(); len(s.Names) != 1 || s.Names[0].Error != "server misbehaving" || len(s.Names[0].Addresses) != 3 || s.Names[0].Failures < 9 {
			t.Errorf("status %+v", s.Names)
		}
		dns.set(nil, "10.0.0.3", "10.0.0.1")
		refreshed(1)
		expect("another address", "web:10.0.0.1 web:10.0.0.3", 2)
		m.setRefuse(errors.New("full"))
		dns.set(nil, "10.0.0.4")
		refreshed(1)
		expect("the data path refuses", "web:10.0.0.1 web:10.0.0.3", 2)
		m.setRefuse(nil)
		refreshed(1)
		expect("it takes them at the next look-up", "web:10.0.0.4", 3)
		dns.set(&net.DNSError{Err: "no such host", IsNotFound: true})
		time.Sleep(2 * names.DefaultRefresh)
		synctest.Wait()
		expect("no such name, twice", "web:10.0.0.4", 3)
		refreshed(1)
		expect("no such name, three times", "", 4)

		if err := l.Load("f", []byte(strings.Replace(webByName, "host: web.example.com", "host: other.example.com, port: 70000", 1))); err == nil || backends(l) != "" {
			t.Errorf("a bad file with another name: %v", err)
		}
		dns.set(nil, "10.0.0.7")
		if err := l.Load("f", []byte(strings.Replace(webByName, "web.example.com", "Other.example.com", 1))); err != nil {
			t.Fatal(err)
		}
		expect("another name", "web:10.0.0.7", 5)
		synctest.Wait()
		if s := l.Status(); len(s.Names) != 1 || s.Names[0].Name != "other.example.com" {
			t.Errorf("names that are followed: %+v", s.Names)
		}
	})
}

// A resolver that does not answer holds a configuration for a bounded time, and its services without names start.
func TestSilentResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(&memory{}, Options{Lookup: func(ctx context.Context, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		var text strings.Builder
		text.WriteString(webByName)
		for i := range 40 {
			text.WriteString("  - {name: n" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + ", host: n" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + ".example.com}\n")
		}
		text.WriteString("  - {name: own, address: 10.0.0.9}\n")
		begin := time.Now()
		if err := l.Load("f", []byte(text.String())); err != nil || backends(l) != "own" {
			t.Fatalf("%v, backends %q", err, backends(l))
		}
		if took := time.Since(begin); took != resolveTimeout {
			t.Errorf("Load took %s of virtual time", took)
		}
	})
}
