package vrrp

import (
	"net/netip"
	"testing"
	"time"
)

var (
	begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	low   = netip.MustParseAddr("192.0.2.1")
	mine  = netip.MustParseAddr("192.0.2.2")
	high  = netip.MustParseAddr("192.0.2.3")
)

const second = time.Second

func after(d time.Duration) time.Time { return begin.Add(d) }

func adv(priority uint8, interval time.Duration) Advertisement {
	return Advertisement{ID: 1, Priority: priority, Interval: interval}
}

// started returns a machine that is Backup since begin; active one that took over then.
func started(config Config) *Machine {
	if config.Self == (netip.Addr{}) {
		config.Self = mine
	}
	if config.Interval == 0 {
		config.Interval = second
	}
	m := New(config)
	m.Start(begin)
	return m
}

func active(t *testing.T, config Config) (*Machine, time.Time) {
	t.Helper()
	m := started(config)
	now := m.Due()
	if m.Tick(now); m.State() != Active {
		t.Fatalf("%v after the active down time", m.State())
	}
	return m, now
}

// Section 6.1: skew is (256-100)/256 of a second, active down three seconds more.
func TestTakesOverAfterActiveDownTime(t *testing.T) {
	m := started(Config{Priority: 100})
	skew := 156 * second / 256
	if got := m.Due().Sub(begin); got != 3*second+skew {
		t.Fatalf("takes over after %s", got)
	}
	if a := m.Tick(m.Due().Add(-1)); a != (Action{}) {
		t.Errorf("early: %+v", a)
	}
	now := m.Due()
	want := Action{Changed: true, Advertise: true, Priority: 100, Announce: true}
	if a := m.Tick(now); a != want || m.State() != Active {
		t.Errorf("%+v, %v", a, m.State())
	}
	if a := m.Tick(now.Add(second)); a != (Action{Advertise: true, Priority: 100}) {
		t.Errorf("a second later: %+v", a)
	}
}

func TestBackupUsesTheIntervalOfTheActiveRouter(t *testing.T) {
	m := started(Config{Priority: 128})
	m.Receive(adv(200, 100*time.Millisecond), high, after(second))
	if got := m.Due().Sub(after(second)); got != 350*time.Millisecond {
		t.Errorf("takes over after %s", got)
	}
}

func TestPriorityZeroLeavesAfterTheSkew(t *testing.T) {
	m := started(Config{Priority: 192})
	m.Receive(adv(200, second), high, after(second))
	m.Receive(adv(0, second), high, after(2*second))
	if got := m.Due().Sub(after(2 * second)); got != 250*time.Millisecond {
		t.Errorf("takes over after %s", got)
	}
}

func TestPreemption(t *testing.T) {
	for _, c := range []struct {
		name    string
		config  Config
		waits   bool // for the active router of lower priority
		at      time.Duration
		outrank uint8
	}{
		{"off", Config{Priority: 100}, true, second, 50},
		{"on", Config{Priority: 100, Preempt: true}, false, second, 50},
		{"on, delayed", Config{Priority: 100, Preempt: true, PreemptDelay: 10 * second}, true, second, 50},
		{"on, delay over", Config{Priority: 100, Preempt: true, PreemptDelay: second}, false, 2 * second, 50},
		{"on, equal priority", Config{Priority: 100, Preempt: true}, true, second, 100},
	} {
		m := started(c.config)
		due := m.Due()
		m.Receive(adv(c.outrank, second), low, after(c.at))
		if waits := m.Due() != due; waits != c.waits {
			t.Errorf("%s: waits %v", c.name, waits)
		}
	}
}

func TestOwnerIsActiveAtOnce(t *testing.T) {
	m := New(Config{Self: mine, Priority: Owner, Interval: second})
	if a := m.Start(begin); m.State() != Active || !a.Advertise || a.Priority != Owner || !a.Announce {
		t.Errorf("%v, %+v", m.State(), a)
	}
	backup := started(Config{Priority: 100})
	if a := backup.Configure(Config{Self: mine, Priority: Owner, Interval: second}, begin); backup.State() != Active || !a.Changed {
		t.Errorf("a backup that becomes the owner: %v, %+v", backup.State(), a)
	}
}

func TestTwoActiveRouters(t *testing.T) {
	for _, c := range []struct {
		name     string
		priority uint8
		from     netip.Addr
		stays    bool
	}{
		{"lower priority", 99, high, true},
		{"higher priority", 101, low, false},
		{"equal, lower address", 100, low, true},
		{"equal, higher address", 100, high, false},
		{"own address", 101, mine, true},
	} {
		m, now := active(t, Config{Priority: 100})
		now = now.Add(second / 2)
		a := m.Receive(adv(c.priority, second), c.from, now)
		if stays := m.State() == Active; stays != c.stays || a.Changed == stays {
			t.Errorf("%s: %v, %+v", c.name, m.State(), a)
		}
		if answers := a.Advertise && a.Announce; answers != (c.stays && c.from != mine) {
			t.Errorf("%s: %+v", c.name, a)
		}
	}
}

// A flood of advertisements is not answered by one.
func TestAnswersAreLimited(t *testing.T) {
	for _, priority := range []uint8{0, 50} {
		m, now := active(t, Config{Priority: 100})
		answers := 0
		for range 1000 {
			now = now.Add(time.Millisecond)
			if m.Receive(adv(priority, second), low, now).Advertise {
				answers++
			}
		}
		if answers != 100 {
			t.Errorf("priority %d: %d answers to 1000 advertisements in a second", priority, answers)
		}
	}
}

func TestStopGivesTheAddressesUp(t *testing.T) {
	m, now := active(t, Config{Priority: 100})
	if a := m.Stop(now); a != (Action{Changed: true, Advertise: true}) || m.State() != Down || !m.Due().IsZero() {
		t.Errorf("%+v, %v", a, m.State())
	}
	if a := m.Stop(now); a != (Action{}) {
		t.Errorf("again: %+v", a)
	}
	if a := m.Receive(adv(1, second), low, now); a != (Action{}) || m.State() != Down {
		t.Errorf("advertisement: %+v", a)
	}
	m.Start(now)
	if a := m.Stop(now); a != (Action{Changed: true}) {
		t.Errorf("of a backup: %+v", a)
	}
}

// A change of the configuration is no reason to give addresses up.
func TestConfigureKeepsTheState(t *testing.T) {
	m, now := active(t, Config{Priority: 100})
	if a := m.Configure(Config{Self: mine, Priority: 90, Interval: second / 10}, now); m.State() != Active || a != (Action{Advertise: true, Priority: 90}) || m.Due() != now.Add(second/10) {
		t.Errorf("%v, %+v", m.State(), a)
	}
}
