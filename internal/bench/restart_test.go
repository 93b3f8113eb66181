package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

var restartBegin = time.Unix(1e9, 0)

// restartSamples is a load of 10 samples a second around events at 0 s and 5 s; change may spoil one at a time since the first event.
func restartSamples(change func(at time.Duration, s *v1.CoAPBenchSample)) (samples []v1.CoAPBenchSample) {
	var total v1.CoAPBenchStats
	for at := -time.Second; at < 10*time.Second; at += 100 * time.Millisecond {
		total.Sent += 100
		total.Requests += 100
		s := v1.CoAPBenchSample{At: restartBegin.Add(at), Period: .1, Max: 20, Waiting: 5, Silence: 10, Late: 1, Total: total}
		if change != nil {
			change(at, &s)
		}
		total = s.Total
		samples = append(samples, s)
	}
	return samples
}

func restartEventsAt() []restartWindow {
	return []restartWindow{{at: restartBegin, load: 2, served: 50 * time.Millisecond}, {at: restartBegin.Add(5 * time.Second), load: 4, served: 70 * time.Millisecond}}
}

// Each event has a verdict of its own: what is lost, a new handshake and a long wait miss the aims; what the clients' program has slept
// through proves nothing.
func TestRestartVerdicts(t *testing.T) {
	at := func(when time.Duration, change func(*v1.CoAPBenchSample)) func(time.Duration, *v1.CoAPBenchSample) {
		return func(now time.Duration, s *v1.CoAPBenchSample) {
			if now == when {
				change(s)
			}
		}
	}
	for name, c := range map[string]struct {
		change          func(time.Duration, *v1.CoAPBenchSample)
		verdicts        [2]string
		why             string
		longest, second time.Duration
	}{
		"nothing":              {nil, [2]string{verdictReached, verdictReached}, "", 20 * time.Millisecond, 20 * time.Millisecond},
		"a request lost":       {at(6*time.Second, func(s *v1.CoAPBenchSample) { s.Total.Lost++ }), [2]string{verdictReached, verdictMissed}, "1 lost", 0, 0},
		"a request refused":    {at(1*time.Second, func(s *v1.CoAPBenchSample) { s.Total.Failed++ }), [2]string{verdictMissed, verdictReached}, "1 lost", 0, 0},
		"a new handshake":      {at(1*time.Second, func(s *v1.CoAPBenchSample) { s.Total.Rehandshakes += 2 }), [2]string{verdictMissed, verdictReached}, "2 handshakes", 0, 0},
		"a wait":               {at(3500*time.Millisecond, func(s *v1.CoAPBenchSample) { s.Max = 3400 }), [2]string{verdictMissed, verdictReached}, "a wait of 3400 ms", 3400 * time.Millisecond, 0},
		"before the event":     {at(3200*time.Millisecond, func(s *v1.CoAPBenchSample) { s.Max = 3400 }), [2]string{verdictMissed, verdictReached}, "a wait of 3400 ms", 3400 * time.Millisecond, 0},
		"still without answer": {at(9500*time.Millisecond, func(s *v1.CoAPBenchSample) { s.Waiting = 4500 }), [2]string{verdictReached, verdictMissed}, "a wait of 4500 ms", 0, 4500 * time.Millisecond},
		"the wait of the first, reported after the second": {at(5500*time.Millisecond, func(s *v1.CoAPBenchSample) { s.Waiting = 5500 }), [2]string{verdictMissed, verdictReached}, "a wait of 5500 ms", 5500 * time.Millisecond, 20 * time.Millisecond},
		"as late as the clients":                           {at(3500*time.Millisecond, func(s *v1.CoAPBenchSample) { s.Max, s.Late = 3400, 900 }), [2]string{verdictVoid, verdictReached}, "900 ms", 0, 0},
		"starved":                                          {at(6*time.Second, func(s *v1.CoAPBenchSample) { s.Late = 1600 }), [2]string{verdictReached, verdictVoid}, "1600 ms", 0, 0},
		"starved, and lost":                                {at(6*time.Second, func(s *v1.CoAPBenchSample) { s.Late = 1600; s.Total.Lost++ }), [2]string{verdictReached, verdictMissed}, "1 lost", 0, 0},
		"no load": {func(now time.Duration, s *v1.CoAPBenchSample) {
			if now >= 5*time.Second {
				s.Total.Requests -= 100
			}
		}, [2]string{verdictReached, verdictMissed}, "no answers", 0, 0},
	} {
		windows := windowsOf(restartEventsAt(), restartSamples(c.change))
		for i := range windows {
			verdict, why := windows[i].judge()
			if verdict != c.verdicts[i] || verdict != verdictReached && !strings.Contains(why, c.why) {
				t.Errorf("%s: event %d: %s (%s), want %s (%s)", name, i+1, verdict, why, c.verdicts[i], c.why)
			}
			if want := []time.Duration{c.longest, c.second}[i]; want != 0 && windows[i].wait != want {
				t.Errorf("%s: event %d: a wait of %v, want %v", name, i+1, windows[i].wait, want)
			}
		}
		if windows[0].sent != 5000 {
			t.Errorf("%s: %d sent, want 5000: those before the first event do not count", name, windows[0].sent)
		}
	}
}

// The result sums the events up, and table, page and exit code say which missed its aims.
func TestRestartResult(t *testing.T) {
	samples := restartSamples(func(at time.Duration, s *v1.CoAPBenchSample) {
		switch at {
		case 3 * time.Second:
			s.Total.Retransmissions += 7
		case 8500 * time.Millisecond:
			s.Max = 3333
		}
	})
	results := make([]*measure.Result, 2)
	for i, event := range restartEvents()[:2] {
		r := &restart{config: RestartConfig{Clients: 7, Times: 2, Every: 5 * time.Second}, event: event}
		results[i] = r.result(restartBegin)
		taken := samples
		if i == 0 {
			taken = restartSamples(nil)
		}
		total := v1.CoAPBench{}
		for second := 1.0; second <= 4; second++ { // since the clients' first request, 1.1 s before the first event
			total.Result.Samples = append(total.Result.Samples, v1.BenchSample{At: second, P50: 1, P99: 10 * second, Max: 100})
		}
		r.fill(results[i], windowsOf(restartEventsAt(), taken), taken, &total)
	}
	r := results[1]
	if len(r.Samples) != 3 || r.Samples[0].At != 900*time.Millisecond || r.Samples[0].P99 != 20*time.Millisecond {
		t.Errorf("samples since the first event: %+v", r.Samples)
	}
	for name, want := range map[string]float64{
		figureRestartSent: 10000, figureRestartLost: 0, figureRehandshakes: 0, figureRepeated: 7, figureLongestWait: 3333, figureSilence: 10, figureServing: 60, figureLate: 1, figureLoadAverage: 3,
	} {
		if got := figureOf(r, name); got != want {
			t.Errorf("%s: %g, want %g", name, got, want)
		}
	}
	if results[0].Parameters[paramVerdict] != verdictReached || r.Parameters[paramVerdict] != verdictMissed || r.Requests != 10000 || r.Errors != 0 {
		t.Errorf("%v, %v, %d answered, %d errors", results[0].Parameters, r.Parameters, r.Requests, r.Errors)
	}
	if err := Check(results); err == nil || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("%v", err)
	}
	table, page := shown(t, results)
	for _, want := range []string{"event 2 missed: a wait of 3333 ms", "aims missed or not proven by 1"} {
		if !strings.Contains(table, want) || !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, table)
		}
	}
	if !strings.Contains(page, "latency of each interval, "+r.Path) {
		t.Error("the page does not draw the latency of each interval")
	}
	if !strings.Contains(page, "longest wait while kill happens") {
		t.Error("no picture of the waits")
	}
}

// What other nodes took over, and what was dropped, belongs to the event in whose window it was counted; a new process of the server counts from 0.
func TestRestartCountsReplicas(t *testing.T) {
	before := replicaCounts{process: 1, dropped: 4, taken: 10, refused: 1}
	for name, c := range map[string]struct {
		after          replicaCounts
		taken, dropped uint64
		behind         int
	}{
		"nothing":                {replicaCounts{process: 1, dropped: 4, taken: 10, refused: 1}, 0, 0, 0},
		"another process":        {replicaCounts{process: 2, taken: 10, refused: 1, behind: 3}, 0, 0, 3},
		"taken over":             {replicaCounts{process: 2, dropped: 5, taken: 15, refused: 1}, 5, 5, 0},
		"the same one dropped":   {replicaCounts{process: 1, dropped: 6, taken: 12, refused: 1}, 2, 2, 0},
		"no room at other nodes": {replicaCounts{process: 2, taken: 12, refused: 4}, 2, 3, 0},
	} {
		var w restartWindow
		w.replicated(before, c.after)
		if w.taken != c.taken || w.dropped != c.dropped || w.behind != c.behind {
			t.Errorf("%s: %d taken over, %d dropped, %d behind", name, w.taken, w.dropped, w.behind)
		}
	}
}

// A session that another node has taken over, or that was dropped, is a figure; an aim is missed only where clients notice.
func TestRestartReplicated(t *testing.T) {
	events := restartEventsAt()
	events[0].taken, events[0].dropped, events[1].taken, events[1].behind = 3, 1, 4, 9
	config := RestartConfig{Clients: 7, Times: 2, Every: 5 * time.Second, Replicate: replicaStore}
	result := func(config RestartConfig, samples []v1.CoAPBenchSample) *measure.Result {
		r := &restart{config: config, event: restartEvents()[1]}
		result := r.result(restartBegin)
		r.fill(result, windowsOf(events, samples), samples, &v1.CoAPBench{})
		return result
	}
	spared := result(config, restartSamples(nil))
	for name, want := range map[string]float64{figureTaken: 7, figureDropped: 1, figureBehind: 9} {
		if got := figureOf(spared, name); got != want {
			t.Errorf("%s: %g, want %g", name, got, want)
		}
		if s := seriesOf(spared, name); s == nil || len(s.Values) != 2 {
			t.Errorf("%s of each event: %+v", name, s)
		}
	}
	if spared.Parameters[paramReplicate] != "embedded" || spared.Parameters[paramVerdict] != verdictReached {
		t.Errorf("%v", spared.Parameters)
	}
	noticed := result(config, restartSamples(func(at time.Duration, s *v1.CoAPBenchSample) {
		if at == time.Second {
			s.Total.Rehandshakes++
		}
	}))
	if why := noticed.Parameters[paramMissed]; why != "event 1 missed: 1 handshakes, 3 sessions taken over, 1 dropped; " {
		t.Errorf("%q", why)
	}
	config.Replicate = ""
	alone := result(config, restartSamples(nil))
	if alone.Parameters[paramReplicate] != "" || seriesOf(alone, figureTaken) != nil {
		t.Errorf("%v has figures of copies", alone.Parameters)
	}
	table, page := shown(t, []*measure.Result{alone, spared})
	for _, want := range []string{"replicate", "embedded", "taken over", "dropped", "behind", "kill, replicated", "one of 3 cluster nodes"} {
		if !strings.Contains(table, want) || !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, table)
		}
	}
	if table, _ := shown(t, []*measure.Result{alone}); strings.Contains(table, "taken over") || strings.Contains(table, "replicate") {
		t.Errorf("nothing was replicated:\n%s", table)
	}
}

// Nodes that roll are not measured with copies, and refused where they are named.
func TestRestartEventsWithReplicas(t *testing.T) {
	config := RestartConfig{Clients: 1, Times: 1, Every: 2 * time.Second, Replicate: replicaStore}
	if err := config.Validate(); err != nil {
		t.Error(err)
	}
	var names []string
	for _, e := range config.measured() {
		names = append(names, e.name)
	}
	if got := strings.Join(names, " "); got != "none kill terminate sigusr2 upgrade" {
		t.Errorf("measured: %s", got)
	}
	config.Replicate = "/usr/bin/etcd"
	if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "--replicate /usr/bin/etcd: give embedded") {
		t.Errorf("another store: %v", err)
	}
	config.Replicate = replicaStore
	for _, event := range []string{"rolling", "rolling-dsr"} {
		config.Events = []string{"kill", event}
		want := "--replicate: the nodes of the event " + event + " move their sessions before they end"
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", event, err)
		}
	}
}

func TestRestartConfig(t *testing.T) {
	good := RestartConfig{Clients: 1, Times: 1, Every: 2 * time.Second}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*RestartConfig){
		"--clients": func(c *RestartConfig) { c.Clients = 0 }, "--interval": func(c *RestartConfig) { c.Interval = -1 }, "--times": func(c *RestartConfig) { c.Times = 0 },
		"--every": func(c *RestartConfig) { c.Every = time.Second }, `no event "reboot"; there are none, kill`: func(c *RestartConfig) { c.Events = []string{"reboot"} },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
	}
}
