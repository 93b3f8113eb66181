package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/health"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// memory is a Datapath that remembers what was applied.
type memory struct {
	fixed   bool // limits of tables
	mu      sync.Mutex
	applied []*lb.Snapshot
	refuse  error
}

func (*memory) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (*memory) Close() error                  { return nil }

func (m *memory) Caps() lb.Caps {
	caps := lb.AllCaps()
	caps.FixedLimits = m.fixed
	return caps
}

func (m *memory) Apply(s *lb.Snapshot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return m.refuse
	}
	m.applied = append(m.applied, s)
	return nil
}

func (m *memory) last() *lb.Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.applied) == 0 {
		return nil
	}
	return m.applied[len(m.applied)-1]
}

func (m *memory) setRefuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = err
}

const good = `maglev_size: 251
services:
- name: s
  vips: [{address: 192.0.2.1, protocol: udp, port: 1}]
  backends:
  - {name: a, address: 10.0.0.1}
  - {name: b, address: 10.0.0.2}
`

func encode(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLastGoodStays(t *testing.T) {
	m := &memory{}
	l := New(m, Options{})
	if l.Ready() == nil {
		t.Error("ready without configuration")
	}
	if err := l.Load("f", []byte("maglev_size: 251")); err == nil || l.Ready() == nil {
		t.Error("an empty configuration was taken")
	}
	if err := l.Load("f", []byte(good)); err != nil {
		t.Fatal(err)
	}
	if s := l.Status(); s.Generation != 1 || s.Error != "" || s.Failures != 1 || l.Ready() != nil {
		t.Errorf("status %+v", s)
	}
	err := l.Load("f", []byte(strings.Replace(good, "10.0.0.2", "192.0.2.1", 1)))
	if want := "f:7:24: services[0].backends[1].address: the backend is the VIP"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
	s := l.Status()
	if s.Generation != 1 || s.Error != err.Error() || s.FailedAt == nil || l.Ready() != nil || len(s.Services[0].Backends) != 2 {
		t.Errorf("status %+v", s)
	}
	if e := l.Override(lb.Target{Service: "s", Backend: "a"}, lb.FromOperator, lb.OverrideDrain); e != nil || l.Status().Error != err.Error() {
		t.Errorf("an override hid the bad configuration: %v, %+v", e, l.Status())
	}
	if err := l.Load("f", []byte(good)); err != nil || l.Status().Error != "" || l.Status().Generation != 3 {
		t.Errorf("a good configuration did not clear the error: %v, %+v", err, l.Status())
	}
}

func TestRefusedApplyChangesNothing(t *testing.T) {
	m := &memory{}
	l := New(m, Options{})
	if err := l.Load("f", []byte(good)); err != nil {
		t.Fatal(err)
	}
	full := errors.New("map is full")
	m.setRefuse(full)
	if err := l.Override(lb.Target{Service: "s", Backend: "a"}, lb.FromOperator, lb.OverrideDrain); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	if got := l.Status().Error; !strings.Contains(got, "map is full") {
		t.Errorf("status error %q", got)
	}
	m.setRefuse(nil)
	if err := l.Load("f", []byte(good)); err != nil {
		t.Fatal(err)
	}
	if state := m.last().Services[0].Backends[0].State; state != lb.Up {
		t.Errorf("the refused override came back: %v", state)
	}
}

func TestOverridesOutliveReload(t *testing.T) {
	m := &memory{}
	l := New(m, Options{})
	target := lb.Target{Service: "s", Backend: "a"}
	if err := l.Override(target, lb.FromOperator, lb.OverrideDrain); !errors.Is(err, ErrNoTarget) {
		t.Errorf("override before configuration: %v", err)
	}
	if err := l.Load("f", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, missing := range []lb.Target{{Service: "x"}, {Service: "s", Backend: "x"}} {
		for _, value := range []lb.Override{lb.OverrideDrain, lb.NoOverride} {
			if err := l.Override(missing, lb.FromOperator, value); !errors.Is(err, ErrNoTarget) {
				t.Errorf("override %v of %v: %v", value, missing, err)
			}
		}
	}
	if err := l.Override(target, lb.FromOperator, lb.OverrideDrain); err != nil {
		t.Fatal(err)
	}
	if err := l.Load("f", []byte(good)); err != nil {
		t.Fatal(err)
	}
	if b := l.Snapshot().Services[0].Backend("a"); b.State != lb.Draining {
		t.Errorf("a is %v after reload", b.State)
	}
	if got := l.Status().Services[0].Backends[0]; got.Override != "drain by operator" || got.Share != 0 {
		t.Errorf("status %+v", got)
	}
	if err := l.Override(target, lb.FromOperator, lb.NoOverride); err != nil || l.Snapshot().Services[0].Backend("a").State != lb.Up {
		t.Errorf("undrain: %v", err)
	}
}

// An override of what a reload took away can still be taken back.
func TestOverrideOfTheGoneIsTakenBack(t *testing.T) {
	m := &memory{}
	l := New(m, Options{})
	target := lb.Target{Service: "s", Backend: "b"}
	without := strings.Replace(good, "  - {name: b, address: 10.0.0.2}\n", "", 1)
	for _, step := range []error{
		l.Load("f", []byte(good)), l.Override(target, lb.FromOperator, lb.OverrideDown), l.Load("f", []byte(without)),
		l.Override(target, lb.FromOperator, lb.NoOverride), l.Load("f", []byte(good)),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if b := m.last().Services[0].Backend("b"); b.State != lb.Up {
		t.Errorf("b is %v", b.State)
	}
}

// Tables that cannot grow say so when limits change, instead of keeping the old size in silence.
func TestFixedLimits(t *testing.T) {
	bigger := []byte("limits:\n  flows: 1000\n" + good)
	l := New(&memory{}, Options{})
	if err := errors.Join(l.Load("f", []byte(good)), l.Load("f", bigger)); err != nil || l.Snapshot().Limits.Flows != 1000 {
		t.Errorf("limits that can change: %v", err)
	}
	l = New(&memory{fixed: true}, Options{})
	if err := l.Load("f", bigger); err != nil {
		t.Fatal(err)
	}
	err := l.Load("f", []byte(good))
	if want := "f:1:1: limits: the tables of the data path any were sized when it started; take the change back, or restart"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if err := l.Load("f", bigger); err != nil || l.Status().Error != "" || l.Snapshot().Generation != 2 {
		t.Errorf("the old limits: %v, %+v", err, l.Status())
	}
}

// A silent backend goes out, comes back, and an operator's word stands against the probe.
func TestHealthDrivesOverrides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		dead := map[netip.Addr]bool{}
		kill := func(address string, is bool) {
			mu.Lock()
			defer mu.Unlock()
			dead[netip.MustParseAddr(address)] = is
		}
		probe := func(_ context.Context, p *health.Probe) error {
			mu.Lock()
			defer mu.Unlock()
			if dead[p.Address.Addr()] {
				return errors.New("dead")
			}
			return nil
		}
		var log bytes.Buffer
		m := &memory{}
		l := New(m, Options{Probe: probe, Log: slog.New(slog.NewTextHandler(&log, nil))})
		withProbe := strings.Replace(good, "  backends", "  health: {type: tcp, interval: 1s, timeout: 500ms, rise: 2, fall: 3}\n  backends", 1)
		if err := l.Load("f", []byte(withProbe)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { l.Run(ctx, nil, nil) })
		state := func(name string) lb.State { return l.Snapshot().Services[0].Backend(name).State }
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }

		wait(10 * time.Second)
		if state("a") != lb.Up || state("b") != lb.Up {
			t.Error("healthy backends are not up")
		}
		kill("10.0.0.1", true)
		wait(1900 * time.Millisecond)
		if state("a") != lb.Up {
			t.Error("a went down before three failures")
		}
		wait(2 * time.Second)
		if state("a") != lb.Down || state("b") != lb.Up {
			t.Errorf("a is %v, b is %v", state("a"), state("b"))
		}
		if got := l.Status().Services[0].Backends[0].Override; got != "down by health" {
			t.Errorf("override %q", got)
		}
		if err := l.Override(lb.Target{Service: "s", Backend: "a"}, lb.FromOperator, lb.OverrideUp); err != nil || state("a") != lb.Up {
			t.Errorf("the operator's up does not stand: %v, %v", err, state("a"))
		}
		if err := l.Override(lb.Target{Service: "s", Backend: "a"}, lb.FromOperator, lb.NoOverride); err != nil || state("a") != lb.Down {
			t.Errorf("a is %v", state("a"))
		}
		kill("10.0.0.1", false)
		wait(3100 * time.Millisecond)
		if state("a") != lb.Up {
			t.Errorf("a is %v after it came back", state("a"))
		}
		// Without probe the override of the probe goes too.
		kill("10.0.0.2", true)
		wait(5 * time.Second)
		if state("b") != lb.Down {
			t.Errorf("b is %v", state("b"))
		}
		if err := l.Load("f", []byte(good)); err != nil {
			t.Fatal(err)
		}
		wait(time.Second)
		if state("b") != lb.Up {
			t.Errorf("b is %v although it is not probed", state("b"))
		}
		cancel()
		group.Wait()
		if !strings.Contains(log.String(), "backend is down") || !strings.Contains(log.String(), "backend is up again") {
			t.Errorf("log: %s", log.String())
		}
	})
}

// Real files: an atomic rename is seen, a bad one is refused, a good one clears the error, SIGHUP's Reload reapplies.
func TestRunFollowsTheFile(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "weir.yaml")
	put := func(text string) {
		t.Helper()
		next := filepath.Join(directory, ".next")
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	put(good)
	m := &memory{}
	l := New(m, Options{})
	file := config.NewFile(path)
	text, err := l.LoadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, file, text) }()
	until := func(what string, ok func(v1.BalancerStatus) bool) {
		t.Helper()
		netlabtest.Eventually(t, what, func() bool { return ok(l.Status()) }, func() string { return fmt.Sprintf("%+v", l.Status()) })
	}
	put(strings.Replace(good, "name: b", "name: c", 1))
	until("rename", func(s v1.BalancerStatus) bool { return s.Generation == 2 && s.Services[0].Backends[1].Name == "c" })
	put("services: x\n")
	until("bad file", func(s v1.BalancerStatus) bool {
		return s.Generation == 2 && strings.Contains(s.Error, "weir.yaml:1:11: services: not a list")
	})
	put(good)
	until("good file", func(s v1.BalancerStatus) bool { return s.Generation == 3 && s.Error == "" })
	file.Reload()
	until("reload", func(s v1.BalancerStatus) bool { return s.Generation == 4 })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	until("removed", func(s v1.BalancerStatus) bool { return s.Generation == 4 && strings.Contains(s.Error, "no such file") })
	put(good)
	until("back", func(s v1.BalancerStatus) bool { return s.Generation == 5 && s.Error == "" })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A watchdog notices that a data path does not return from a change, and that the loop does not run.
func TestRespond(t *testing.T) {
	m := &memory{}
	l := New(m, Options{})
	respond := func() <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Respond(context.Background())
		}()
		return done
	}
	silent := func(answer <-chan struct{}, when string) {
		t.Helper()
		select {
		case <-answer:
			t.Errorf("answered %s", when)
		case <-time.After(20 * time.Millisecond):
		}
	}
	first := respond()
	silent(first, "before Run")
	stop := netlabtest.Run(t, func(ctx context.Context) error { return l.Run(ctx, nil, nil) })
	<-first
	m.mu.Lock() // Apply waits for it
	loaded := make(chan error, 1)
	go func() { loaded <- l.Load("f", []byte(good)) }()
	for l.mu.TryLock() {
		l.mu.Unlock()
		runtime.Gosched()
	}
	hung := respond()
	silent(hung, "while the data path hangs")
	m.mu.Unlock()
	<-hung
	if err := <-loaded; err != nil {
		t.Error(err)
	}
	stop()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l.Respond(ended) // returns
}
