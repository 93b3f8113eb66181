package bench

import (
	"fmt"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// coapTables are one: a row for each path.
func coapTables(results []*measure.Result) []plot.Table {
	spent := func(head, process string) column {
		return column{head, func(r *measure.Result) string {
			if cost := r.CPUPerRequest(process); cost > 0 {
				return fmt.Sprintf("%.1f", float64(cost)/float64(time.Microsecond))
			}
			return "-"
		}}
	}
	millis := func(head string, q float64) column {
		return column{head, func(r *measure.Result) string {
			if r.Latency == nil {
				return "-"
			}
			return fmt.Sprintf("%.1f", measure.Millis(r.Latency.Quantile(q)))
		}}
	}
	scaled := func(head, format, figure string, by float64) column {
		return column{head, func(r *measure.Result) string { return fmt.Sprintf(format, by*figureOf(r, figure)) }}
	}
	return []plot.Table{tableOf("CPU of a CoAP request", results, nil,
		pathColumn("path"), formatted("server us/req", "%.1f", figureServer), spent("balancer us/req", "balancer"), spent("client us/req", "clients"),
		scaled("forwarded", "%.0f%%", figureForwarded, 100), column{"reqs/s", func(r *measure.Result) string { return wholeNumber(r.Rate()) }},
		millis("p50 ms", .5), millis("p99 ms", .99), scaled("servers MB", "%.1f", figureMemory, 1e-6),
		counted("retrans.", figureRetrans), counted("lost sessions", figureSessions))}
}

// coapNotes are what became of clients that moved, and the ratios of the run.
func coapNotes(results []*measure.Result) (notes []string) {
	cost, share := map[string]float64{}, map[string]float64{}
	for _, r := range results {
		cost[r.Path], share[r.Path] = figureOf(r, figureServer), figureOf(r, figureForwarded)
		if changed := figureOf(r, figureMoves); changed > 0 {
			notes = append(notes, fmt.Sprintf("%s: %.0f changes of a source address, %.0f records forwarded between nodes, %.0f sessions lost or begun again, %d errors",
				r.Path, changed, figureOf(r, figureForeign), figureOf(r, figureSessions), r.Errors))
		}
	}
	if forwarded, steered := cost["moved-nat"], cost["moved-ebpf"]; forwarded > 0 && steered > 0 {
		notes = append(notes, fmt.Sprintf("steered by connection id in the kernel, a request costs its servers %.2f of what it costs with forwarding.", steered/forwarded))
	}
	if right, wrong := cost["cluster"], cost["cluster-wrong-node"]; right > 0 && wrong > 0 {
		note := fmt.Sprintf("forwarding costs %+.0f%% server CPU", 100*(wrong/right-1))
		if more := share["cluster-wrong-node"] - share["cluster"]; more > 0 {
			note += fmt.Sprintf(", %+.1f µs for each forwarded request, all nodes together", (wrong-right)/more)
		}
		notes = append(notes, note+".")
	}
	if own, peer := cost["direct"], cost[peerScandium]; own > 0 && peer > 0 {
		notes = append(notes, fmt.Sprintf("a DTLS request costs Californium's server (scandium) %.2f times what it costs Weir's node (direct).", peer/own))
	}
	return append(notes, "Figures of other servers are in docs/figures.md, with their machine and date; they do not compare with those above.")
}
