package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Format is the version of Result's JSON form. Adding a key keeps it; changing the meaning of one raises it.
const Format = 1

// Result is one run of one scenario over one path. Its zero value is an empty result.
type Result struct {
	Scenario   string            // what ran, such as "udp-echo"
	Path       string            // over what, such as "direct", "weir nat", "iptables"; "road" in JSON
	Parameters map[string]string // knobs of the run
	Machine    Machine
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

// Machine says where a run was made: numbers of two machines do not compare.
type Machine struct {
	CPU    string `json:"cpu,omitempty"`
	Cores  int    `json:"cores,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	Go     string `json:"go,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// Process is the cost of one process in the measured phase.
type Process struct {
	Name      string        // role, such as "balancer"
	CPU       time.Duration // user and system time
	PeakBytes uint64        // largest resident set since its start
}

// Figure is one number with its unit.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

// Sample is the state over one interval that ended at At.
type Sample struct {
	At       time.Duration // since the start of the measured phase
	Rate     float64       // requests per second
	P50, P99 time.Duration
	Errors   uint64
}

// Series is one gauge over time. At and Values have the same length; a moment without a value is in neither.
type Series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit,omitempty"`
	At     []float64 `json:"at_s"` // seconds since the start of the measured phase, ascending
	Values []float64 `json:"values"`
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

// resultJSON is the one JSON form of a Result.
type resultJSON struct {
	Format     int               `json:"format"`
	Scenario   string            `json:"scenario"`
	Path       string            `json:"road"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Machine    Machine           `json:"machine"`
	Started    time.Time         `json:"started"`
	Elapsed    float64           `json:"elapsed_s"`
	Requests   uint64            `json:"requests"`
	Rate       float64           `json:"requests_per_s"`
	Errors     uint64            `json:"errors"`
	Bytes      uint64            `json:"bytes,omitempty"`
	Latency    *Latency          `json:"latency,omitempty"`
	Processes  []processJSON     `json:"processes,omitempty"`
	Figures    []Figure          `json:"figures,omitempty"`
	Samples    []sampleJSON      `json:"samples,omitempty"`
	Series     []Series          `json:"series,omitempty"`
	Events     []eventJSON       `json:"events,omitempty"`
}

type processJSON struct {
	Name       string  `json:"name"`
	CPU        float64 `json:"cpu_s"`
	PerRequest float64 `json:"cpu_per_request_us"`
	PeakBytes  uint64  `json:"peak_bytes,omitempty"`
}

type sampleJSON struct {
	At     float64 `json:"at_s"`
	Rate   float64 `json:"requests_per_s"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Errors uint64  `json:"errors"`
}

type eventJSON struct {
	At   float64 `json:"at_s"`
	What string  `json:"what"`
}

// MarshalJSON implements [json.Marshaler].
func (r *Result) MarshalJSON() ([]byte, error) {
	form := resultJSON{
		Format: Format, Scenario: r.Scenario, Path: r.Path, Parameters: r.Parameters, Machine: r.Machine, Started: r.Started,
		Elapsed: r.Elapsed.Seconds(), Requests: r.Requests, Rate: r.Rate(), Errors: r.Errors, Bytes: r.Bytes,
		Latency: r.Latency, Figures: r.Figures, Series: r.Series,
	}
	for _, p := range r.Processes {
		perRequest := float64(r.CPUPerRequest(p.Name)) / float64(time.Microsecond)
		form.Processes = append(form.Processes, processJSON{p.Name, p.CPU.Seconds(), perRequest, p.PeakBytes})
	}
	for _, s := range r.Samples {
		form.Samples = append(form.Samples, sampleJSON{s.At.Seconds(), s.Rate, Millis(s.P50), Millis(s.P99), s.Errors})
	}
	for _, e := range r.Events {
		form.Events = append(form.Events, eventJSON{e.At.Seconds(), e.What})
	}
	return json.Marshal(form)
}

// UnmarshalJSON implements [json.Unmarshaler]. What follows from other keys (rates, costs per request) is not read.
func (r *Result) UnmarshalJSON(data []byte) error {
	var form resultJSON
	if err := json.Unmarshal(data, &form); err != nil {
		return err
	}
	if form.Format != Format {
		return fmt.Errorf("format %d: this weir reads results of format %d; run the benchmark again", form.Format, Format)
	}
	*r = Result{
		Scenario: form.Scenario, Path: form.Path, Parameters: form.Parameters, Machine: form.Machine, Started: form.Started,
		Elapsed: duration(form.Elapsed, time.Second), Requests: form.Requests, Errors: form.Errors, Bytes: form.Bytes,
		Latency: form.Latency, Figures: form.Figures, Series: form.Series,
	}
	for _, p := range form.Processes {
		r.Processes = append(r.Processes, Process{p.Name, duration(p.CPU, time.Second), p.PeakBytes})
	}
	for _, s := range form.Samples {
		r.Samples = append(r.Samples, Sample{
			At: duration(s.At, time.Second), Rate: s.Rate, Errors: s.Errors,
			P50: duration(s.P50, time.Millisecond), P99: duration(s.P99, time.Millisecond),
		})
	}
	for _, e := range form.Events {
		r.Events = append(r.Events, Event{duration(e.At, time.Second), e.What})
	}
	return nil
}

func duration(value float64, unit time.Duration) time.Duration {
	return time.Duration(math.Round(value * float64(unit)))
}
