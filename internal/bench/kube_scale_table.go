package bench

import (
	"fmt"
	"math"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// Figures of a [KubeScale] result.
const (
	figureKubeAll       = "all programmed after"
	figureKubeChanges   = "changes made"
	figureKubeRate      = "changes a second"
	figureKubeMeasured  = "readiness measured"
	figureKubeP50       = "readiness to kernel p50"
	figureKubeP99       = "readiness to kernel p99"
	figureKubeLost      = "not served"
	figureKubeStale     = "still served from before"
	figureKubeFailed    = "changes refused"
	figureKubeLate      = "changes late"
	figureKubeRenders   = "renders"
	figureKubeTranslate = "list and translate"
	figureKubeApplied   = "configurations applied"
	figureKubeApply     = "compile and apply"
	figureKubeRequests  = "API requests"
	figureKubeEach      = "API requests a change"
	figureKubeOperator  = "operator CPU"
	figureKubeBalancer  = "load balancer CPU"
	figureKubeServer    = "API server CPU"
	figureKubeMemory    = "operator memory"
)

// kubeSpent is what the parts of a cluster have done so far.
type kubeSpent struct {
	operator, balancer, server procstat.Usage
	counters, applied          map[string]float64
	requests                   int // of the operator
}

func (s *kubeScale) spent() (k kubeSpent, err error) {
	for pid, into := range map[int]*procstat.Usage{s.operator.PID(): &k.operator, s.balancer.PID(): &k.balancer, s.plane.PID(): &k.server} {
		if *into, err = procstat.Of(pid); err != nil {
			return k, err
		}
	}
	if k.counters, err = s.operator.Metrics(s.ctx); err != nil {
		return k, err
	}
	if k.applied, err = s.balancer.Metrics(s.ctx); err != nil {
		return k, err
	}
	requests, err := s.plane.Requests(kubeNamespace, "operator")
	for _, n := range requests {
		k.requests += n
	}
	return k, err
}

// fillResult computes the figures of a run.
func (s *kubeScale) fillResult(r *measure.Result, before, after kubeSpent) {
	changes := float64(s.changes.Load())
	since := func(name string) float64 { return after.counters[name] - before.counters[name] }
	applied := func(name string) float64 { return after.applied[name] - before.applied[name] }
	milliseconds := func(sum, count float64) float64 { return 1000 * sum / math.Max(count, 1) }
	percent := func(a, b procstat.Usage) float64 { return 100 * (b.CPU - a.CPU).Seconds() / r.Elapsed.Seconds() }
	r.LoadAfter = procstat.LoadAverage()
	r.Requests, r.Errors = s.latency.Count(), s.lost.Load()+s.failed.Load()
	r.Figures = []measure.Figure{
		{Name: figureKubeChanges, Value: changes},
		{Name: figureKubeRate, Value: changes / r.Elapsed.Seconds()},
		{Name: figureKubeMeasured, Value: float64(s.latency.Count())},
		{Name: figureKubeP50, Value: measure.Millis(s.latency.Quantile(0.5)), Unit: "ms"},
		{Name: figureKubeP99, Value: measure.Millis(s.latency.Quantile(0.99)), Unit: "ms"},
		{Name: figureKubeLost, Value: float64(s.lost.Load())},
		{Name: figureKubeStale, Value: float64(s.stale.Load())},
		{Name: figureKubeFailed, Value: float64(s.failed.Load())},
		{Name: figureKubeLate, Value: float64(s.slow.Load())},
		{Name: figureKubeRenders, Value: since("weir_operator_renders_total")},
		{Name: figureKubeTranslate, Value: milliseconds(since("weir_operator_translate_duration_seconds_sum"), since("weir_operator_translate_duration_seconds_count")), Unit: "ms"},
		{Name: figureKubeApplied, Value: applied("weir_config_reloads_total")},
		{Name: figureKubeApply, Value: milliseconds(applied("weir_apply_duration_seconds_sum"), applied("weir_apply_duration_seconds_count")), Unit: "ms"},
		{Name: figureKubeRequests, Value: float64(after.requests - before.requests)},
		{Name: figureKubeEach, Value: float64(after.requests-before.requests) / math.Max(changes, 1)},
		{Name: figureKubeOperator, Value: percent(before.operator, after.operator), Unit: "% of a core"},
		{Name: figureKubeBalancer, Value: percent(before.balancer, after.balancer), Unit: "% of a core"},
		{Name: figureKubeServer, Value: percent(before.server, after.server), Unit: "% of a core"},
		{Name: figureKubeMemory, Value: float64(after.operator.PeakBytes) / 1e6, Unit: "MB"},
	}
	for name, use := range map[string][2]procstat.Usage{"operator": {before.operator, after.operator}, "load balancer": {before.balancer, after.balancer}} {
		r.Processes = append(r.Processes, measure.Process{Name: name, CPU: use[1].CPU - use[0].CPU, PeakBytes: use[1].PeakBytes})
	}
	r.Parameters[paramVerdict] = verdictReached
	switch {
	case s.latency.Count() == 0:
		r.Parameters[paramVerdict], r.Parameters[paramMissed] = verdictMissed, "nothing was measured"
	case s.lost.Load() > 0:
		r.Parameters[paramVerdict], r.Parameters[paramMissed] = verdictMissed, fmt.Sprintf("%d Pods that became ready were not served within %v", s.lost.Load(), probeLimit)
	case s.failed.Load() > 0:
		r.Parameters[paramVerdict], r.Parameters[paramMissed] = verdictMissed, fmt.Sprintf("%d changes were refused", s.failed.Load())
	}
}

func kubeScaleTables(results []*measure.Result) []plot.Table {
	return []plot.Table{
		tableOf("A Pod becomes ready in a large cluster", results, stateOf,
			column{"Gateways", func(r *measure.Result) string { return r.Parameters["gateways"] }}, column{"endpoints", func(r *measure.Result) string { return r.Parameters["endpoints"] }},
			counted("changes/s", figureKubeRate), counted("measured", figureKubeMeasured), counted("p50 ms", figureKubeP50), counted("p99 ms", figureKubeP99), counted("not served", figureKubeLost),
			column{"verdict", func(r *measure.Result) string { return verdictOf(r) }}),
		tableOf("What it costs", results, stateOf,
			formatted("all programmed s", "%.1f", figureKubeAll), counted("renders", figureKubeRenders), numbered("translate ms", figureKubeTranslate), counted("applied", figureKubeApplied),
			numbered("apply ms", figureKubeApply), formatted("API requests/change", "%.3f", figureKubeEach), counted("operator CPU %", figureKubeOperator), counted("load balancer CPU %", figureKubeBalancer),
			counted("API server CPU %", figureKubeServer), counted("operator MB", figureKubeMemory)),
	}
}

func kubeScaleMethod(results []*measure.Result) string {
	r, m := results[0], results[0].Machine
	return fmt.Sprintf(`A real API server with %s Gateways, each with a UDPRoute and a Service, and %s endpoints; %s changes of endpoints a second for %s. Pods are simulated: this program writes
EndpointSlices, and the status of %d Pods, whose EndpointSlices the cluster's own controller writes. p50 and p99 are from before the request that writes a Pod's readiness until the first datagram, one every %v to
the Gateway, reaches the Pod's address through the load balancer in the kernel. "Translate" is the mean of listing and translating the whole cluster once, "apply" of compiling a configuration and
writing it to the kernel. All share the machine: %s, %d cores, Linux %s. Started %s.`,
		r.Parameters["gateways"], r.Parameters["endpoints"], r.Parameters["rate"], r.Parameters["duration"], kubeProbes, probeEvery, m.CPU, m.Cores, m.Kernel, r.Started.UTC().Format(time.DateTime))
}

func kubeScaleVerdict(results []*measure.Result) string {
	r := results[0]
	return fmt.Sprintf("from readiness to the kernel p50 %.0f ms, p99 %.0f ms: %s", figureOf(r, figureKubeP50), figureOf(r, figureKubeP99), verdictOf(r))
}
