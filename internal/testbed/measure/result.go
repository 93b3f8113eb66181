package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// Format is the version of Result's JSON form. Adding a key keeps it; changing the meaning of one raises it.
const Format = 1

// Result is one run of one scenario over one path. Its zero value is an empty result.
type Result struct {
	Scenario   string            // what ran, such as "udp-echo"
	Path       string            // over what, such as "direct", "weir nat", "iptables"; its JSON key is "road", as in v1.BenchResult
	Parameters map[string]string // knobs of the run
	Machine    Machine
	Command    string        // what was typed; empty: not known
	LoadBefore string        // load average of the machine, of 1, 5 and 15 minutes; empty: not known
	LoadAfter  string        // the same, at the end
	Started    time.Time     // wall clock, for people
	Elapsed    time.Duration // of the measured phase
	Requests   uint64        // answered
	Errors     uint64        // not answered, or answered wrongly
	Bytes      uint64        // payload, one direction
	Latency    *Latency      // nil when the scenario has none
	Processes  []Process     // what each process spent in the measured phase
	Figures    []Figure      // what only this scenario knows
	Samples    []Sample      // over time, ascending
	Series     []Series      // gauges over time, such as memory
	Events     []Event       // what was done to the system meanwhile, ascending
}

// These have the same form here as in the JSON.
type (
	Machine = v1.BenchMachine // where a run was made: numbers of two machines do not compare
	Figure  = v1.BenchFigure  // one number with its unit
	Series  = v1.BenchSeries  // one gauge over time
)

// Process is the cost of one process in the measured phase.
type Process struct {
	Name      string        // role, such as "balancer"
	CPU       time.Duration // user and system time
	PeakBytes uint64        // largest resident set since its start
}

// Sample is the state over one interval that ended at At.
type Sample struct {
	At       time.Duration // since the start of the measured phase
	Rate     float64       // requests per second
	P50, P99 time.Duration
	Max      time.Duration // 0: nothing was measured in it
	Errors   uint64
}

// Event is something done to the system at At.
type Event struct {
	At   time.Duration
	What string
}

// Rate is requests per second; 0 for an empty phase.
func (r *Result) Rate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Requests) / r.Elapsed.Seconds()
}

// CPUPerRequest is the processor time that the named process spent per answered request; 0 when either is missing.
func (r *Result) CPUPerRequest(process string) time.Duration {
	for _, p := range r.Processes {
		if p.Name == process && r.Requests > 0 {
			return time.Duration(float64(p.CPU) / float64(r.Requests))
		}
	}
	return 0
}

// MarshalJSON implements [json.Marshaler]: the public form.
func (r *Result) MarshalJSON() ([]byte, error) { return json.Marshal(r.Form()) }

// Form is the public form of the result, for JSON.
func (r *Result) Form() *v1.BenchResult {
	form := v1.BenchResult{
		Format: Format, Scenario: r.Scenario, Path: r.Path, Parameters: r.Parameters, Machine: r.Machine, Started: r.Started,
		Command: r.Command, LoadBefore: r.LoadBefore, LoadAfter: r.LoadAfter, Elapsed: r.Elapsed.Seconds(), Requests: r.Requests, Rate: r.Rate(), Errors: r.Errors, Bytes: r.Bytes,
		Latency: r.Latency.Form(), Figures: r.Figures, Series: r.Series,
	}
	for _, p := range r.Processes {
		perRequest := float64(r.CPUPerRequest(p.Name)) / float64(time.Microsecond)
		form.Processes = append(form.Processes, v1.BenchProcess{Name: p.Name, CPU: p.CPU.Seconds(), PerRequest: perRequest, PeakBytes: p.PeakBytes})
	}
	form.Samples = SamplesForm(r.Samples)
	for _, e := range r.Events {
		form.Events = append(form.Events, v1.BenchEvent{At: e.At.Seconds(), What: e.What})
	}
	return &form
}

// UnmarshalJSON implements [json.Unmarshaler]. What follows from other keys (rates, costs per request) is not read.
func (r *Result) UnmarshalJSON(data []byte) error {
	var form v1.BenchResult
	if err := json.Unmarshal(data, &form); err != nil {
		return err
	}
	if form.Format != Format {
		return fmt.Errorf("format %d: this weir reads results of format %d; run the benchmark again", form.Format, Format)
	}
	latency, err := LatencyOf(form.Latency)
	if err != nil {
		return err
	}
	*r = Result{
		Scenario: form.Scenario, Path: form.Path, Parameters: form.Parameters, Machine: form.Machine, Started: form.Started,
		Command: form.Command, LoadBefore: form.LoadBefore, LoadAfter: form.LoadAfter, Elapsed: duration(form.Elapsed, time.Second), Requests: form.Requests, Errors: form.Errors, Bytes: form.Bytes,
		Latency: latency, Figures: form.Figures, Series: form.Series,
	}
	for _, p := range form.Processes {
		r.Processes = append(r.Processes, Process{p.Name, duration(p.CPU, time.Second), p.PeakBytes})
	}
	r.Samples = SamplesOf(form.Samples)
	for _, e := range form.Events {
		r.Events = append(r.Events, Event{duration(e.At, time.Second), e.What})
	}
	return nil
}

// SamplesForm is the public form of samples, for JSON; nil of none.
func SamplesForm(samples []Sample) (form []v1.BenchSample) {
	for _, s := range samples {
		form = append(form, v1.BenchSample{At: s.At.Seconds(), Rate: s.Rate, P50: Millis(s.P50), P99: Millis(s.P99), Max: Millis(s.Max), Errors: s.Errors})
	}
	return form
}

// SamplesOf are the samples that have this form; nil of none.
func SamplesOf(form []v1.BenchSample) (samples []Sample) {
	for _, s := range form {
		samples = append(samples, Sample{
			At: duration(s.At, time.Second), Rate: s.Rate, Errors: s.Errors,
			P50: duration(s.P50, time.Millisecond), P99: duration(s.P99, time.Millisecond), Max: duration(s.Max, time.Millisecond),
		})
	}
	return samples
}

func duration(value float64, unit time.Duration) time.Duration {
	return time.Duration(math.Round(value * float64(unit)))
}
