package demo

import (
	"strings"
	"testing"
	"time"
)

func proved() *Result {
	r := &Result{Clients: 200, Nodes: 3, Requests: 1000, Forwarded: 10, Sessions: []int{1, 2, 3}}
	for _, p := range schedule(30 * time.Second) {
		r.Events = append(r.Events, Event{At: p.at.Seconds(), Kind: string(p.kind), Label: p.kind.words(3)})
	}
	return r
}

func TestARunThatHeldIsProved(t *testing.T) {
	r := proved()
	r.judge()
	if !r.OK || !strings.Contains(r.Verdict, "Sessions lost: 0, handshakes after the first: 0") || !strings.Contains(r.Verdict, "changed 5 times") {
		t.Fatalf("%v %q %v", r.OK, r.Verdict, r.Failures)
	}
}

// Each way in which a run can fail to prove its claim must be able to make it fail.
func TestEachFaultIsJudged(t *testing.T) {
	for name, spoil := range map[string]func(*Result){
		"lost":          func(r *Result) { r.Lost = 1 },
		"handshakes":    func(r *Result) { r.Rehandshakes = 1 },
		"requests fail": func(r *Result) { r.Errors = 1 },
		"no request":    func(r *Result) { r.Requests = 0 },
		"wrong":         func(r *Result) { r.Forwarded = 0 },
		"drained":       func(r *Result) { r.Events[5].Error = "no such destination" },
	} {
		t.Run(name, func(t *testing.T) {
			r := proved()
			spoil(r)
			r.judge()
			if r.OK || len(r.Failures) != 1 || !strings.HasPrefix(r.Verdict, "Not proved: ") {
				t.Fatalf("%v %q %v", r.OK, r.Verdict, r.Failures)
			}
		})
	}
}

func TestScheduleHasWhatTheIssueAsks(t *testing.T) {
	counts := map[kind]int{}
	last := time.Duration(0)
	for _, p := range schedule(6 * time.Second) {
		counts[p.kind]++
		if p.at-last < 700*time.Millisecond {
			t.Errorf("%s comes %s after the one before it: it would not show", p.kind, p.at-last)
		}
		last = p.at
	}
	if counts[natClear] != 3 || counts[rebalance] != 2 || counts[drain] != 1 || last > 5*time.Second {
		t.Fatalf("%v, last at %s", counts, last)
	}
}

func TestViewRedrawsInPlaceOnATerminal(t *testing.T) {
	var out strings.Builder
	v := &view{out: &out, terminal: true, total: 10 * time.Second}
	v.tick(tick{at: 1, rate: 1000, sessions: []int{1, 2}, forwarded: []uint64{0, 4}})
	first := strings.Count(out.String(), "\n")
	out.Reset()
	v.event(Event{At: 1.5, Label: "cleared"})
	v.tick(tick{at: 2, rate: 2000, p50: time.Millisecond, p99: 2 * time.Millisecond, sessions: []int{1, 2}, forwarded: []uint64{0, 4}})
	text := out.String()
	if !strings.HasPrefix(text, "\x1b["+itoa(first)+"A") {
		t.Errorf("does not go up %d lines: %q", first, text[:12])
	}
	for _, want := range []string{"cleared", "2000 req/s", "p50   1.00 ms", "1 2", "▄█"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
}

func itoa(n int) string { return string(rune('0' + n)) }

func TestConfigSaysWhatCannotBeShown(t *testing.T) {
	good := Config{Clients: 1, Nodes: 2, Duration: 6 * time.Second}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for flag, bad := range map[string]Config{
		"--clients": {Clients: 0, Nodes: 2, Duration: 6 * time.Second},
		"--nodes":   {Clients: 1, Nodes: 1, Duration: 6 * time.Second},
		"--seconds": {Clients: 1, Nodes: 2, Duration: time.Second},
	} {
		if err := bad.Validate(); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
