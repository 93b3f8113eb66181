package snat_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/snat"
)

func simulate(t testing.TB, s snat.Scenario) snat.Run {
	t.Helper()
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	run, err := snat.Simulate(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func one(kind snat.Kind) []snat.StageSpec { return []snat.StageSpec{{Kind: kind}} }

func seconds(n float64) *time.Duration {
	d := time.Duration(n * float64(time.Second))
	return &d
}

// What goes on for ever under too many arrivals is what the plan says: ports / (lifetime + hold-down).
func TestSaturatedPortsComeBackAtThePlannedRate(t *testing.T) {
	for name, c := range map[string]struct {
		path    []snat.StageSpec
		traffic snat.Traffic
		want    float64 // by hand
	}{
		"FIN":       {one(snat.AzureNAT), snat.Traffic{Lifetime: time.Second}, 64512 / 66.0},
		"RST":       {one(snat.AzureNAT), snat.Traffic{Lifetime: time.Second, RST: 1}, 64512 / 17.0},
		"LB, FIN":   {one(snat.AzureLB), snat.Traffic{Lifetime: time.Second}, 1024 / 241.0},
		"abandoned": {one(snat.AzureLB), snat.Traffic{Lifetime: time.Second, Abandoned: 1}, 1024 / 241.0},
		"long":      {one(snat.AWSNAT), snat.Traffic{Lifetime: 100 * time.Second}, 550},
		"TIME_WAIT": {one(snat.Ephemeral), snat.Traffic{Lifetime: time.Second, Spread: "fixed"}, 28232 / 61.0},
		"mixed":     {one(snat.Masquerade), snat.Traffic{Lifetime: 10 * time.Second, RST: 0.5}, 64512 / (10 + 0.5*120 + 0.5*10)},
	} {
		t.Run(name, func(t *testing.T) {
			c.traffic.Policy, c.traffic.Duration, c.traffic.Rate = snat.Open, 6*time.Minute, 1.05*c.want
			if c.want < 10 {
				c.traffic.Duration = 4 * time.Hour // few, and slow
			}
			if c.traffic.Lifetime > time.Minute {
				c.traffic.Duration, c.traffic.Rate = 20*time.Minute, 1.3*c.want
			}
			s := snat.Scenario{Path: c.path, Traffic: c.traffic}
			run, plan := simulate(t, s), s.WithDefaults().Plan()
			if math.Abs(plan.NewPerSecond-c.want) > 1e-6*c.want || plan.Fits {
				t.Errorf("plan: %.3f/s (fits %v), want %.3f/s", plan.NewPerSecond, plan.Fits, c.want)
			}
			if math.Abs(run.OpenPerSecond-c.want) > 0.05*c.want || run.TimedOut+run.Errors == 0 {
				t.Errorf("simulated: %.3f/s, %d failed, want %.3f/s", run.OpenPerSecond, run.TimedOut+run.Errors, c.want)
			}
		})
	}
}

// The reference's figures for zero lifetime.
func TestPlannedRatesOfClosedConnections(t *testing.T) {
	for _, c := range []struct {
		spec    snat.StageSpec
		traffic snat.Traffic
		want    float64
	}{
		{snat.StageSpec{Kind: snat.AzureNAT}, snat.Traffic{}, 992.5},
		{snat.StageSpec{Kind: snat.AzureNAT}, snat.Traffic{RST: 1}, 4032},
		{snat.StageSpec{Kind: snat.AzureLB}, snat.Traffic{Abandoned: 1}, 4.27},
		{snat.StageSpec{Kind: snat.AzureLB}, snat.Traffic{}, 4.27},
		{snat.StageSpec{Kind: snat.AzureLB}, snat.Traffic{RST: 1}, 1024 / 15.0},
		{snat.StageSpec{Kind: snat.AWSNAT}, snat.Traffic{}, 0}, // its hold-down is not published
		{snat.StageSpec{Kind: snat.AWSNAT, HoldFIN: seconds(55)}, snat.Traffic{}, 1000},
		{snat.StageSpec{Kind: snat.GCPNAT, Ports: 1024}, snat.Traffic{}, 1024 / 120.0},
	} {
		got := snat.Scenario{Path: []snat.StageSpec{c.spec}, Traffic: c.traffic}.WithDefaults().Plan().NewPerSecond
		if math.Abs(got-c.want) > 0.001*c.want+0.005 {
			t.Errorf("%+v: %.3f/s, want %.3f/s", c, got, c.want)
		}
	}
}

// A SYN without a port waits 1, 3, 7 … s; the kernel gives up at 127 s.
func TestSYNsAreSentAgain(t *testing.T) {
	s := snat.Scenario{
		Path: []snat.StageSpec{{Kind: snat.AzureLB, Ports: 8, HoldFIN: seconds(0)}},
		Traffic: snat.Traffic{
			Policy: snat.Open, Rate: 0.000001, Burst: 16, BurstEvery: 150 * time.Second, Lifetime: 5 * time.Second, Spread: "fixed", Duration: 299 * time.Second,
		},
	}
	if run := simulate(t, s); !reflect.DeepEqual(run.WaitedFor, []int64{8, 0, 0, 8, 0, 0, 0}) || run.Delayed != 8 || run.TimedOut != 0 {
		t.Errorf("after 5 s there is room again, the next SYN comes at 7: %+v", run)
	}
	s.Traffic.Lifetime = 0
	s.Traffic.Duration = 276 * time.Second
	if run := simulate(t, s); run.TimedOut != 0 || run.Opened != 8 || run.Stages[0].Refused != 8*7 {
		t.Errorf("before 127 s are over: %+v", run)
	}
	s.Traffic.Duration = 278 * time.Second
	if run := simulate(t, s); run.TimedOut != 8 || run.Opened != 8 {
		t.Errorf("after 127 s: %+v", run)
	}
}

// The client's own port range answers at once, and no SYN leaves.
func TestOwnPortsFailAtOnce(t *testing.T) {
	run := simulate(t, snat.Scenario{Connections: 30_000, Path: one(snat.Ephemeral)})
	if run.Peak != 28_232 || run.TimedOut != 0 || run.Errors < 1768 {
		t.Errorf("%+v", run)
	}
}

// Dynamic allocation doubles from its start: refused connections get through with a later SYN.
func TestDynamicPortsGrow(t *testing.T) {
	spec := snat.StageSpec{Kind: snat.GCPNAT, Ports: 64, MaxPorts: 8192, Grow: 2 * time.Second}
	run := simulate(t, snat.Scenario{Path: []snat.StageSpec{spec}})
	if run.Peak != 8192 || run.Delayed == 0 || run.WaitedFor[0] == 0 {
		t.Errorf("peak %d, delayed %d", run.Peak, run.Delayed)
	}
	// The pool of one address gives 15 nodes 4,096 each; what is left is no whole doubling.
	s := snat.Scenario{Nodes: 15, Replicas: 15, Path: []snat.StageSpec{spec}}
	agree(t, s, s.WithDefaults().Plan())
	if p := s.WithDefaults().Plan(); p.Holds != 61_440 {
		t.Errorf("%d", p.Holds)
	}
	// A fast ramp is slower than the growth, a slow one is not.
	s = snat.Scenario{Connections: 8000, Path: []snat.StageSpec{spec}, Traffic: snat.Traffic{Rate: 2}}
	s.Traffic.Duration = 2 * time.Hour
	if run := simulate(t, s); run.Delayed != 0 || run.Peak != 8000 {
		t.Errorf("slow ramp: delayed %d, peak %d", run.Delayed, run.Peak)
	}
}

// The seventh replica of the original tester gets what is left, is evicted and starts again; six stay.
func TestTheOriginalTesterKeepsWholeReplicas(t *testing.T) {
	s := snat.Scenario{Replicas: 7, Path: one(snat.Masquerade), Traffic: snat.Traffic{Policy: snat.Original, Rate: 10_000, Duration: 4 * time.Hour}}
	run := simulate(t, s)
	if run.Peak != 64_512 || run.Lowest != 60_000 || run.Restarts < 5 || run.Evicted < 5*4512 {
		t.Errorf("peak %d, lowest %d, %d restarts, %d evicted", run.Peak, run.Lowest, run.Restarts, run.Evicted)
	}
	s.Replicas = 6
	if run := simulate(t, s); run.Peak != 60_000 || run.Lowest != 60_000 || run.Restarts != 0 || run.Evicted != 0 {
		t.Errorf("six: %+v", run.Stages)
	}
	// Two nodes of 8,000: a saw-tooth from 0 to 16,000, and 12,500 is on its way.
	saw := snat.Scenario{
		Nodes: 2, Replicas: 2, Path: []snat.StageSpec{{Kind: snat.AzureLB, IPs: 2, Ports: 8000}},
		Traffic: snat.Traffic{Policy: snat.Original, Duration: 2 * time.Hour, Rate: 150},
	}
	run = simulate(t, saw)
	near := 0
	for _, n := range run.Series.Held {
		if n > 11_250 && n < 13_750 {
			near++
		}
	}
	if run.Peak != 16_000 || run.Lowest != 0 || near == 0 {
		t.Errorf("peak %d, lowest %d, %d readings near 12,500", run.Peak, run.Lowest, near)
	}
}

func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	s := snat.Scenario{
		Nodes: 3, Replicas: 5, Destinations: 4, Path: []snat.StageSpec{{Kind: snat.Ephemeral, Ports: 500}, {Kind: snat.GCPNAT, MaxPorts: 128}},
		Traffic: snat.Traffic{Policy: snat.Open, Rate: 500, Lifetime: time.Second, RST: 0.3, Abandoned: 0.1, Seed: 9},
	}
	a, b := simulate(t, s), simulate(t, s)
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs of one seed differ")
	}
	s.Traffic.Seed = 10
	if c := simulate(t, s); reflect.DeepEqual(a.Series, c.Series) {
		t.Error("another seed changes nothing")
	}
}

func TestSimulateEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := snat.Scenario{Path: one(snat.AzureNAT), Traffic: snat.Traffic{Policy: snat.Open, Rate: 1e6, Lifetime: time.Second, Duration: time.Hour}}.WithDefaults()
	last := -1.0
	_, err := snat.Simulate(ctx, s, func(done float64) {
		if done < last || done > 1 {
			t.Errorf("progress from %v to %v", last, done)
		}
		if last = done; done > 0.0001 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || last < 0 {
		t.Errorf("%v", err)
	}
	s.Replicas, s.Destinations, s.Path = 1_000_000, 10_000, one(snat.Ephemeral)
	if _, err := snat.Simulate(t.Context(), s.WithDefaults(), nil); err == nil {
		t.Error("ten thousand million cells were allocated")
	}
}

// After its start a simulation allocates nothing per event: what a longer one allocates is no more.
func TestEventsDoNotAllocate(t *testing.T) {
	run := func(d time.Duration) float64 {
		s := snat.Scenario{
			Path:    one(snat.AzureNAT),
			Traffic: snat.Traffic{Policy: snat.Open, Rate: 1000, Lifetime: time.Second, Duration: d},
		}.WithDefaults()
		return testing.AllocsPerRun(1, func() {
			if _, err := snat.Simulate(t.Context(), s, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	short, long := run(100*time.Second), run(400*time.Second)
	if perEvent := (long - short) / 900_000; perEvent > 0.001 {
		t.Errorf("%v allocations, then %v: %v per event", short, long, perEvent)
	}
}

func BenchmarkSimulate(b *testing.B) {
	for _, policy := range []snat.Policy{snat.Open, snat.Keep} {
		b.Run(fmt.Sprintf("%s-10M", policy), func(b *testing.B) {
			s := snat.Scenario{
				Nodes: 100, Replicas: 1000, Destinations: 4, Path: []snat.StageSpec{{Kind: snat.Ephemeral}, {Kind: snat.AzureNAT, IPs: 16}},
				Traffic: snat.Traffic{Policy: policy, Rate: 20_000, Lifetime: 10 * time.Second, Duration: 500 * time.Second},
			}
			if policy == snat.Keep {
				s.Path, s.Traffic.Rate, s.Traffic.Lifetime = []snat.StageSpec{{Kind: snat.Ephemeral}}, 100, 0
			}
			b.ReportAllocs()
			for b.Loop() {
				run := simulate(b, s)
				b.ReportMetric(float64(run.Events)/b.Elapsed().Seconds()*float64(b.N), "events/s")
				b.ReportMetric(float64(run.Opened), "connections")
			}
		})
	}
}

// Server nodes and servers are counted one by one: what one of them has left does not help at another.
func TestServersFillOneByOne(t *testing.T) {
	s := snat.Scenario{
		Servers: 4, ServerNodes: 2, Connections: 400, Path: []snat.StageSpec{{Kind: snat.Files, Side: "server", Limit: 100}, {Kind: snat.Conntrack, Side: "server", Limit: 200}},
		Traffic: snat.Traffic{Rate: 100, Duration: time.Minute},
	}
	if run := simulate(t, s); run.Peak != 400 || run.Stages[0].Refused+run.Stages[1].Refused != 0 || run.Stages[0].Fullest != 100 || run.Stages[1].Fullest != 200 {
		t.Errorf("even: %+v", run.Stages)
	}
	s.Traffic.Balance = "random"
	run := simulate(t, s)
	if run.Series.Held[len(run.Series.Held)-1] >= 400 || run.Stages[0].Refused == 0 || run.Stages[0].Fullest != 100 || run.BrokeAt == nil || *run.BrokeAt > 4 {
		t.Errorf("random: %d held, %+v", run.Peak, run.Stages)
	}
	// The node's address towards each server is a key by itself.
	kube := snat.Scenario{Servers: 2, ServerNodes: 2, Connections: 5000, Path: []snat.StageSpec{{Kind: snat.MasqueradeLB, Ports: 1000}}}
	agree(t, kube, kube.WithDefaults().Plan())
	if run := simulate(t, kube); run.Stages[0].Fullest != 1000 || run.Stages[0].PerKey != 1000 || run.Peak != 4000 {
		t.Errorf("%+v", run.Stages)
	}
}

// What breaks first has the earliest refusal, and the run says when.
func TestARunSaysWhatBrokeFirst(t *testing.T) {
	run := simulate(t, snat.Scenario{
		Connections: 2000, Path: []snat.StageSpec{{Kind: snat.Ephemeral, Ports: 1500}, {Kind: snat.AzureLB}}, Traffic: snat.Traffic{Rate: 100},
	})
	if run.BrokeFirst != "Azure LB outbound, 1,024 ports per node" || run.BrokeAt == nil || math.Abs(*run.BrokeAt-10.24) > 0.02 {
		t.Errorf("%s at %v", run.BrokeFirst, run.BrokeAt)
	}
	if run := simulate(t, snat.Scenario{Connections: 5, Path: one(snat.AzureLB)}); run.BrokeFirst != "" || run.BrokeAt != nil {
		t.Errorf("nothing broke: %+v", run)
	}
}

// A UDP flow ends in silence: its port comes back after the idle time-out and the hold-down; no program sends the first packet again.
func TestUDPFlows(t *testing.T) {
	for name, c := range map[string]struct {
		path []snat.StageSpec
		dsts int
		ips  int
		want int64   // held at most, by hand
		rate float64 // new flows per second
	}{
		"Azure LB: one port per address": {[]snat.StageSpec{{Kind: snat.AzureLB}}, 4, 2, 2048, 2048 / 241.0},
		"Azure NAT gateway":              {one(snat.AzureNAT), 1, 0, 50_000, 50_000 / (1 + 240.0)},
		"Cloud NAT":                      {[]snat.StageSpec{{Kind: snat.GCPNAT, Ports: 1024}}, 2, 0, 2048, 2048 / 31.0},
		"masquerade":                     {one(snat.Masquerade), 1, 0, 64_512, 64_512 / 121.0},
		"own ports":                      {one(snat.Ephemeral), 3, 0, 28_232, 28_232},
	} {
		s := snat.Scenario{Protocol: snat.UDP, Destinations: c.dsts, DestinationIPs: c.ips, Connections: 100_000, Path: c.path, Traffic: snat.Traffic{Lifetime: time.Second}}
		p := s.WithDefaults().Plan()
		if p.Holds != c.want || math.Abs(p.NewPerSecond-c.rate) > 0.01*c.rate {
			t.Errorf("%s: holds %d, %.2f/s, want %d, %.2f/s", name, p.Holds, p.NewPerSecond, c.want, c.rate)
		}
		s.Traffic = snat.Traffic{}
		agree(t, s, s.WithDefaults().Plan())
	}
	// Its 50,000 flows end 240 s after the last packet, their ports rest for 65 s more: 64,512 are just enough.
	gateway := snat.Scenario{
		Protocol: snat.UDP, Path: one(snat.AzureNAT),
		Traffic: snat.Traffic{Policy: snat.Open, Rate: 220, Lifetime: time.Second, Spread: "fixed", Duration: time.Hour},
	}
	run := simulate(t, gateway)
	if st := run.Stages[0]; st.Peak != 50_000 || st.PeakHeld <= 60_000 || st.PeakHeld > 64_512 || math.Abs(run.OpenPerSecond-207.5) > 4 {
		t.Errorf("NAT gateway: %d flows, %d ports, %.1f/s", st.Peak, st.PeakHeld, run.OpenPerSecond)
	}
	s := snat.Scenario{
		Protocol: snat.UDP, Path: []snat.StageSpec{{Kind: snat.GCPNAT, Ports: 64}},
		Traffic: snat.Traffic{Policy: snat.Open, Rate: 1e-6, Burst: 100, BurstEvery: 40 * time.Second, Lifetime: time.Second, Spread: "fixed", Duration: 100 * time.Second},
	}
	if run := simulate(t, s); run.Opened != 128 || run.TimedOut != 72 || run.Delayed != 0 {
		t.Errorf("two bursts of 100 for 64 ports, 40 s apart: %+v", run)
	}
}

// Bursts of 8 connections, 1 s long each, onto 8 ports: each kind of rest is as long as the rule says, to the SYN.
func TestPortsRestAsLongAsTheRuleSays(t *testing.T) {
	lb := snat.StageSpec{Kind: snat.AzureLB, Ports: 8}
	for name, c := range map[string]struct {
		path    snat.StageSpec
		traffic snat.Traffic // burst_every, abandoned, rst
		until   time.Duration
		opened  []int64 // by SYN
		errors  int64
	}{
		// in use 20 to 21 s, in TIME_WAIT to 81 s: the bursts at 40, 60 and 80 s fail at once, the one at 100 s does not
		"TIME_WAIT": {snat.StageSpec{Kind: snat.Ephemeral, Ports: 8}, snat.Traffic{BurstEvery: 20 * time.Second}, 110 * time.Second, []int64{16, 0, 0, 0, 0, 0, 0}, 24},
		// cool-down to 79.9 + 1 + 240 = 320.9 s: the last SYNs of the bursts at 159.8 and 239.7 s come at 222.8 and 302.7 s; those of
		// the burst at 319.6 s come at 319.6, 320.6 and 322.6 s, and the third gets through
		"cool-down after FIN": {lb, snat.Traffic{BurstEvery: 79900 * time.Millisecond}, 330 * time.Second, []int64{8, 0, 8, 0, 0, 0, 0}, 0},
		// 80 + 1 + 15 = 96 s, long before 160 s
		"cool-down after RST": {lb, snat.Traffic{BurstEvery: 80 * time.Second, RST: 1}, 170 * time.Second, []int64{16, 0, 0, 0, 0, 0, 0}, 0},
		// idle expiry 300 + 1 + 240 = 541 s, before 600 s
		"idle expiry": {lb, snat.Traffic{BurstEvery: 300 * time.Second, Abandoned: 1}, 610 * time.Second, []int64{16, 0, 0, 0, 0, 0, 0}, 0},
		// Azure NAT gateway's 65 s, with its ports: nothing is short
		"NAT gateway": {snat.StageSpec{Kind: snat.AzureNAT}, snat.Traffic{BurstEvery: 10 * time.Second}, 45 * time.Second, []int64{32, 0, 0, 0, 0, 0, 0}, 0},
	} {
		tr := c.traffic
		tr.Policy, tr.Rate, tr.Burst, tr.Lifetime, tr.Spread, tr.Duration = snat.Open, 1e-6, 8, time.Second, "fixed", c.until
		run := simulate(t, snat.Scenario{Path: []snat.StageSpec{c.path}, Traffic: tr})
		if !reflect.DeepEqual(run.WaitedFor, c.opened) || run.Errors != c.errors {
			t.Errorf("%s: opened by SYN %v, %d errors, want %v, %d", name, run.WaitedFor, run.Errors, c.opened, c.errors)
		}
	}
	// A port serves two destinations at one time.
	run := simulate(t, snat.Scenario{Connections: 16, Destinations: 2, Path: []snat.StageSpec{lb}})
	if run.Peak != 16 || run.Stages[0].Refused != 0 || run.Stages[0].Fullest != 8 {
		t.Errorf("reuse: %+v", run.Stages[0])
	}
}
