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
