package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

func proved() *Result {
	r := &Result{Demo: v1.Demo{
		Clients: 200, Nodes: 3, Requests: 1000, Forwarded: 10, Established: 200, Sessions: []int{1, 2, 3}, Drained: 3, Seconds: 30,
		Plain: v1.DemoPlain{Clients: 50, Established: 233, Lost: 183, Rehandshakes: 183},
	}}
	for _, p := range schedule(30 * time.Second) {
		r.Events = append(r.Events, v1.DemoEvent{At: p.at.Seconds(), Kind: string(p.kind), Label: p.kind.words(250, 3), LostPlain: 30})
	}
	return r
}

func TestARunThatHeldIsProved(t *testing.T) {
	r := proved()
	r.judge()
	if !r.OK || r.Verdict != "Sessions lost: 0 with connection IDs, 183 of 233 without." {
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

func TestScheduleHasWhatTheIssueRequires(t *testing.T) {
	counts := map[kind]int{}
	last := time.Duration(0)
	for _, p := range schedule(6 * time.Second) {
		counts[p.kind]++
		if p.at-last < 700*time.Millisecond {
			t.Errorf("%s comes %s after the one before it: it would not show", p.kind, p.at-last)
		}
		last = p.at
	}
	if plan := schedule(time.Minute); plan[4].kind != drain || plan[5].kind != natClear {
		t.Error("no clear after the drain: no one sees that the node gets no new clients")
	}
	if counts[natClear] != 3 || counts[rebalance] != 2 || counts[drain] != 1 || last > 5*time.Second {
		t.Fatalf("%v, last at %s", counts, last)
	}
}

func TestLineForEachSecondWhereThereIsNoTerminal(t *testing.T) {
	var out strings.Builder
	v := &view{live: terminal.NewLive(&out), total: 10 * time.Second}
	v.tick(tick{at: 1, rate: 2000, p50: time.Millisecond, p99: 2 * time.Millisecond, plainLost: 7, sessions: []int{1, 2}, drained: 2})
	v.event(v1.DemoEvent{At: 1.5, Label: "cleared"})
	for _, want := range []string{"2000 req/s", "p50   1.00 ms", "lost 0, without CIDs 7", "sessions 1 2 (drained)", "event   1.5 s  cleared\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
	v.end(proved())
	if lines := strings.Count(out.String(), "\n"); lines != 2 {
		t.Errorf("%d lines, want 2:\n%s", lines, &out)
	}
}

// What was lost is booked to the event before, of both kinds of clients.
func TestLossesAreBookedToTheirEvent(t *testing.T) {
	r := &Result{}
	for _, lost := range [][2]uint64{{0, 0}, {0, 50}, {1, 83}, {1, 83}} {
		r.attribute(lost[0], lost[1])
		r.Events = append(r.Events, v1.DemoEvent{})
	}
	r.attribute(1, 90)
	for i, want := range [][2]uint64{{0, 50}, {1, 33}, {0, 0}, {0, 7}} {
		if e := r.Events[i]; e.Lost != want[0] || e.LostPlain != want[1] {
			t.Errorf("event %d: %d and %d, want %d", i+1, e.Lost, e.LostPlain, want)
		}
	}
}

// The page compares both kinds of clients in a plot, names the events there, and shows which client sent to which node.
func TestPageShowsTheContrast(t *testing.T) {
	r := proved()
	for i := range 30 {
		r.ticks = append(r.ticks, tick{at: float64(i + 1), rate: 1000, p50: time.Millisecond, p99: 3 * time.Millisecond, sessions: []int{1, 2, 3}, clients: []int{80, 80, 90}, plainLost: uint64(6 * i), plainMade: 233, plainRequests: uint64(500 * i)})
	}
	r.Max = 3003
	r.Command, r.LoadBefore, r.LoadAfter, r.rtt = "weir demo --report d.html", "1 2 3", "4 5 6", measure.NewLatency()
	r.rtt.Record(7 * time.Millisecond)
	r.judge()
	page := r.report(time.Time{}, r.method())
	lost, ok := page.Figures[0].(plot.Chart)
	if !ok || lost.Title != "Sessions lost" || len(lost.Series) != 2 || !lost.Series[1].Muted || lost.Series[1].Y[29] != 183 || lost.Series[0].Y[29] != 0 {
		t.Errorf("%+v", lost)
	}
	if len(lost.Marks) != 6 || lost.Marks[0].Text != "+30" || len(lost.Events) != 6 || lost.Events[4].Short != "drain" {
		t.Errorf("%+v %+v", lost.Marks, lost.Events)
	}
	var html strings.Builder
	if err := page.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"weir demo --report d.html", "load average: 1 2 3 before, 4 5 6 after", "percentiles of the run", "p99.9", "3003 ms", "50 clients", "weir nat", "183 of 233",
		"3 (drained: ", "drain: no new clients for node 3. Lost: 0 sessions with connection IDs, 30 without",
	} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestConfigSaysWhatCannotBeShown(t *testing.T) {
	good := Config{Clients: 1, Nodes: 2, Duration: 6 * time.Second}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for flag, bad := range map[string]Config{
		"--clients":  {Clients: 0, Nodes: 2, Duration: 6 * time.Second},
		"--nodes":    {Clients: 1, Nodes: 1, Duration: 6 * time.Second},
		"--duration": {Clients: 1, Nodes: 2, Duration: time.Second},
		"--interval": {Clients: 1, Nodes: 2, Duration: 6 * time.Second, Interval: 2 * time.Second},
	} {
		if err := bad.Validate(); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
