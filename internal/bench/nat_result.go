package bench

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// Names of the figures of a [NAT] result: microseconds.
const (
	figureNATPath  = "path"  // of a datagram
	figureNATAdded = "added" // of a datagram
	figureNATAll   = "all"   // of a request
	figureNATRate  = "requests/s"
)

// NATResults is the comparison as a list of results, for its page.
func NATResults(b *NATResult, started time.Time) (results []*measure.Result, err error) {
	for i := range b.Paths {
		p := &b.Paths[i]
		r := &measure.Result{Scenario: scenarioNAT, Path: p.Name, Machine: machine(), Started: started, Parameters: map[string]string{
			paramClients: strconv.Itoa(b.Clients), "requests": strconv.Itoa(b.Requests), "rounds": strconv.Itoa(b.Rounds),
			"payload": strconv.Itoa(b.Payload), "network": b.Network,
		}}
		results = append(results, r)
		if p.Skipped != "" {
			r.Parameters[paramAbsent] = p.Skipped
			continue
		}
		if r.Latency, err = measure.LatencyOf(p.Latency); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		r.Samples, r.Requests, r.Errors = measure.SamplesOf(p.Samples), r.Latency.Count(), uint64(p.Lost)
		r.Figures = []measure.Figure{
			{Name: figureNATPath, Value: p.ProxyCPU, Unit: "us"},
			{Name: figureNATAdded, Value: p.AddedCPU, Unit: "us"},
			{Name: figureNATAll, Value: p.TotalCPU, Unit: "us"},
			{Name: figureNATRate, Value: p.Rate, Unit: "1/s"},
		}
	}
	return results, nil
}

// natTables are one: a row for each path.
func natTables(results []*measure.Result) []plot.Table {
	return []plot.Table{tableOf("CPU of a forwarded datagram", results, stateOf,
		pathColumn("path"), counted("requests/s", figureNATRate), numbered("path us/datagram", figureNATPath), numbered("added us/datagram", figureNATAdded),
		numbered("all us/request", figureNATAll), column{"p50 ms", quantile(.5)}, column{"p99 ms", quantile(.99)}, column{"longest ms", quantile(1)},
		column{"lost", func(r *measure.Result) string { return strconv.FormatUint(r.Errors, 10) }})}
}

// natPictures is what every path costs.
func natPictures(results []*measure.Result) []plot.Figure {
	bars := plot.Bars{Title: "CPU for a datagram", Unit: "us", Names: []string{figureNATPath, figureNATAdded}, Note: "Less is better. A kernel path has no process of its own."}
	for _, r := range results {
		if len(r.Figures) > 0 {
			bars.Groups = append(bars.Groups, plot.Group{Name: r.Path, Values: []float64{figureOf(r, figureNATPath), figureOf(r, figureNATAdded)}})
		}
	}
	return []plot.Figure{bars}
}

func natMethod(results []*measure.Result) string {
	r, m := results[0], results[0].Machine
	p := r.Parameters
	return fmt.Sprintf(`%s clients in a closed loop, %s requests of %s bytes over each path in each of %s rounds, whose medians are shown; %s. Latency is that of all rounds, from the first
transmission of a request, and in the pictures over the time of the path's own rounds, one after the other. %s, %d cores, Linux %s.`,
		p[paramClients], p["requests"], p["payload"], p["rounds"], p["network"], m.CPU, m.Cores, m.Kernel)
}
