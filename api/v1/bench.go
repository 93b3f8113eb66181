package v1

import "time"

// BenchResult is one run of one scenario over one path: what `weir bench run` writes, and part of the output of other measuring
// commands. Values that follow from others (rates, costs of one request) are there for readers.
type BenchResult struct {
	Format     int               `json:"format"`                // version of this form; 1
	Scenario   string            `json:"scenario"`              // what ran, such as udp-echo
	Path       string            `json:"road"`                  // the path, such as direct, weir nat or iptables; the key keeps its first name, for programs that read it
	Parameters map[string]string `json:"parameters,omitempty"`  // knobs of the run; absent: none
	Machine    BenchMachine      `json:"machine"`               // numbers of two machines do not compare
	Command    string            `json:"command,omitempty"`     // that made it, as typed; absent: not known
	LoadBefore string            `json:"load_before,omitempty"` // load average of the machine before, of 1, 5 and 15 minutes; absent: not known
	LoadAfter  string            `json:"load_after,omitempty"`  // the same after it; absent: not known
	Started    time.Time         `json:"started"`               // wall clock
	Elapsed    float64           `json:"elapsed_s"`             // seconds of the measured phase
	Requests   uint64            `json:"requests"`              // answered
	Rate       float64           `json:"requests_per_s"`        // requests per second of the measured phase
	Errors     uint64            `json:"errors"`                // requests not answered, or answered wrongly
	Bytes      uint64            `json:"bytes,omitempty"`       // payload, one direction; absent: not counted
	Latency    *BenchLatency     `json:"latency,omitempty"`     // absent: the scenario has none
	Processes  []BenchProcess    `json:"processes,omitempty"`   // what each process spent in the measured phase; absent: not measured
	Figures    []BenchFigure     `json:"figures,omitempty"`     // what only this scenario knows; absent: nothing
	Samples    []BenchSample     `json:"samples,omitempty"`     // over time, ascending; absent: none
	Series     []BenchSeries     `json:"series,omitempty"`      // gauges over time, such as memory; absent: none
	Events     []BenchEvent      `json:"events,omitempty"`      // what was done to the system meanwhile, ascending; absent: nothing
}

// BenchMachine says where a run was made.
type BenchMachine struct {
	CPU    string `json:"cpu,omitempty"`    // model; absent: not known
	Cores  int    `json:"cores,omitempty"`  // that the run could use; absent: not known
	Kernel string `json:"kernel,omitempty"` // release; absent: not known
	Go     string `json:"go,omitempty"`     // version of the compiler; absent: not known
	Commit string `json:"commit,omitempty"` // of Weir; absent: not known
}

// BenchLatency is a distribution of times.
type BenchLatency struct {
	Count uint64  `json:"count"`                // of times
	Min   float64 `json:"min_ms"`               // milliseconds, as the next eight
	Mean  float64 `json:"mean_ms"`              // average
	P50   float64 `json:"p50_ms"`               // half of the times are no longer
	P90   float64 `json:"p90_ms"`               // 90 % of them
	P95   float64 `json:"p95_ms"`               // 95 % of them
	P99   float64 `json:"p99_ms"`               // 99 % of them
	P999  float64 `json:"p999_ms"`              // 99.9 % of them
	P9999 float64 `json:"p9999_ms"`             // 99.99 % of them
	Max   float64 `json:"max_ms"`               // the longest
	Over  uint64  `json:"over_range,omitempty"` // times too long to be distinguished; absent: none
	// Buckets are the histogram: the longest duration of a bucket in nanoseconds, and its count; ascending, none empty.
	Buckets [][2]int64 `json:"buckets"`
}

// BenchProcess is the cost of one process in the measured phase.
type BenchProcess struct {
	Name       string  `json:"name"`                 // role, such as balancer
	CPU        float64 `json:"cpu_s"`                // seconds of user and system time
	PerRequest float64 `json:"cpu_per_request_us"`   // microseconds of that for each answered request
	PeakBytes  uint64  `json:"peak_bytes,omitempty"` // largest resident set since its start; absent: not measured
}

// BenchFigure is one number with its unit.
type BenchFigure struct {
	Name  string  `json:"name"`           // what it is
	Value float64 `json:"value"`          // in Unit
	Unit  string  `json:"unit,omitempty"` // absent: it has none
}

// BenchSample is the state over one interval of a second or longer: in a long run of twice, four times as long and so on, with the
// percentiles of the worst second or so in it.
type BenchSample struct {
	At     float64 `json:"at_s"`           // end of the interval, in seconds since the start of the measured phase
	Rate   float64 `json:"requests_per_s"` // answered requests per second
	P50    float64 `json:"p50_ms"`         // latency of half of them is no longer, in milliseconds
	P99    float64 `json:"p99_ms"`         // latency of 99 % of them, in milliseconds
	Max    float64 `json:"max_ms"`         // the longest latency, in milliseconds; 0: nothing was answered
	Errors uint64  `json:"errors"`         // of the interval; 0 where a scenario knows them of the whole run only
}

// BenchSeries is one gauge over time. At and Values have the same length; a moment without a value is in neither.
type BenchSeries struct {
	Name   string    `json:"name"`           // what it is
	Unit   string    `json:"unit,omitempty"` // of Values; absent: they have none
	At     []float64 `json:"at_s"`           // seconds since the start of the measured phase, ascending
	Values []float64 `json:"values"`         // in Unit
}

// BenchEvent is something done to the system.
type BenchEvent struct {
	At   float64 `json:"at_s"` // seconds since the start of the measured phase
	What string  `json:"what"` // for people
}
