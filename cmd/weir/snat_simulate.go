package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/lab/plot"
	"github.com/weir-lb/weir/internal/lab/snatplan"
)

// snatRun is what `weir snat simulate --json` prints.
type snatRun struct {
	Verdict string        `json:"verdict"`
	Took    float64       `json:"took_s"`
	PerSec  float64       `json:"events_per_second"` // of real time
	Run     snatplan.Run  `json:"run"`
	Plan    snatplan.Plan `json:"plan"`
	Report  string        `json:"report,omitempty"`
}

func newSnatSimulateCommand() *cobra.Command {
	var f snatFlags
	var report string
	cmd := &cobra.Command{
		Use:   "simulate [KIND]",
		Short: "Replay connections over a path in virtual time, ten million in seconds",
		Long: `Replay connections over the stages of a path in virtual time: arrivals and bursts, lifetimes, SYN retries at 1, 3, 7,
15, 31 and 63 s, ports held down after FIN and RST, idle expiry, TIME_WAIT, allocations that grow. The same seed gives the
same result.

Policy keep opens what each replica wants and reconnects. Policy open has connections arrive at --rate, whoever is served.
Policy original is the tester that the source document was measured with: blocking connects that stop at the first error,
heartbeats only afterwards, a server that closes silent sockets, and a restart with back-off when a write fails.`,
		Example: `  weir snat simulate azure-lb --nodes 2 --ips 2 --ports 8000 --replicas 2 --policy original --duration 1h --report saw-tooth.html
  weir snat simulate azure-nat --ips 16 --nodes 50 --replicas 50 --policy open --rate 12000 --lifetime 10s --duration 840s
  weir snat simulate gcp-nat --ports 64 --max-ports 8192 --policy open --rate 50 --lifetime 1m
  weir snat simulate -c examples/snat/churn.yaml --scenario "closed by FIN" --json | jq .run.opened_per_second`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(snatKinds(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			traffic := f.scenario.Traffic
			scenarios, err := f.read(cmd, args)
			if err != nil {
				return err
			}
			if len(scenarios) != 1 {
				return usageError(fmt.Errorf("--scenario: %s has %d scenarios; name one: %s", f.file, len(scenarios), strings.Join(snatNames(scenarios), "; ")))
			}
			s := scenarios[0]
			if f.file != "" {
				overrideTraffic(cmd, &s, traffic)
				if err := s.Validate(); err != nil {
					return usageError(asFlag(err))
				}
			}
			return simulateSnat(cmd, s, report, f.json)
		},
	}
	f.register(cmd)
	t, flags := &f.scenario.Traffic, cmd.Flags()
	flags.DurationVar(&t.Duration, "duration", 5*time.Minute, "virtual time")
	flags.Uint64Var(&t.Seed, "seed", 1, "seed; the same seed gives the same result")
	flags.StringVar(&t.Spread, "spread", "exponential", "of lifetimes: exponential or fixed")
	flags.DurationVar(&t.Heartbeat, "heartbeat", 15*time.Second, "policy original: the client's INTERVAL")
	flags.DurationVar(&t.Validate, "validate", 45*time.Second, "policy original: the server's INTERVAL")
	addReportFlag(cmd, &report, "write a page with plots to this file")
	return cmd
}

// overrideTraffic lets the flags that make sense beside a file win over it.
func overrideTraffic(cmd *cobra.Command, s *snatplan.Scenario, t snatplan.Traffic) {
	for name, set := range map[string]func(){
		"policy": func() { s.Traffic.Policy = t.Policy }, "duration": func() { s.Traffic.Duration = t.Duration }, "seed": func() { s.Traffic.Seed = t.Seed },
	} {
		if cmd.Flags().Changed(name) {
			set()
		}
	}
}

func simulateSnat(cmd *cobra.Command, s snatplan.Scenario, report string, asJSON bool) error {
	line := newProgress(cmd.ErrOrStderr())
	defer line.clear()
	run, err := snatplan.Simulate(cmd.Context(), s, func(done float64) {
		if time.Since(line.started) > 2*time.Second {
			line.show(done, "simulate")
		}
	})
	took := time.Since(line.started)
	switch {
	case cmd.Context().Err() != nil:
		return interrupted(cmd.Context().Err())
	case err != nil:
		return usageError(err)
	}
	line.clear()
	out := snatRun{Run: run, Plan: s.Plan(), Took: took.Seconds(), PerSec: float64(run.Events) / took.Seconds(), Report: report}
	out.Verdict = snatVerdict(s, run, out.Plan)
	if err := writeReport(report, func(w io.Writer) error { return snatReport(s, out).WriteHTML(w) }); err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), out)
	}
	return writeRun(cmd.OutOrStdout(), out)
}

// snatVerdict is what a run says, in one sentence.
func snatVerdict(s snatplan.Scenario, run snatplan.Run, p snatplan.Plan) string {
	failed := run.TimedOut + run.Errors
	switch {
	case s.Traffic.Policy == snatplan.Original && run.Evicted > 0:
		return fmt.Sprintf("The testers move between %s and %s connections, %.0f on average; the path holds %s.", snatplan.Group(run.Lowest), snatplan.Group(run.Peak), run.Mean, snatplan.Group(p.Holds))
	case failed > 0:
		return fmt.Sprintf("%.2f %% of %s connects failed; at most %s connections were held, %.0f/s opened.", 100*float64(failed)/float64(run.Attempts), snatplan.Group(run.Attempts), snatplan.Group(run.Peak), run.OpenPerSecond)
	case run.Delayed > 0:
		return fmt.Sprintf("No connect failed, %s of %s waited for a SYN retry; at most %s connections were held.", snatplan.Group(run.Delayed), snatplan.Group(run.Opened), snatplan.Group(run.Peak))
	}
	return fmt.Sprintf("All %s connects succeeded at once; at most %s connections were held.", snatplan.Group(run.Attempts), snatplan.Group(run.Peak))
}

func writeRun(out io.Writer, r snatRun) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STAGE\tMOST CONNECTIONS\tMOST PORTS IN USE OR HELD DOWN\tREFUSED")
	for _, st := range r.Run.Stages {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", st.Name, snatplan.Group(st.Peak), snatplan.Group(st.PeakHeld), snatplan.Group(st.Refused))
	}
	err := w.Flush()
	run := r.Run
	fmt.Fprintf(out, "\n%s\n", r.Verdict)
	fmt.Fprintf(out, "connects  %s, opened %s (%.1f/s in the last half), delayed %s, timed out %s, errors %s\n", snatplan.Group(run.Attempts), snatplan.Group(run.Opened),
		run.OpenPerSecond, snatplan.Group(run.Delayed), snatplan.Group(run.TimedOut), snatplan.Group(run.Errors))
	fmt.Fprintf(out, "held      peak %s, last half from %s to the end: mean %.0f, last %s\n", snatplan.Group(run.Peak), snatplan.Group(run.Lowest), run.Mean, snatplan.Group(run.Last))
	if run.Restarts > 0 {
		fmt.Fprintf(out, "testers   %s connections evicted for silence, %s restarts\n", snatplan.Group(run.Evicted), snatplan.Group(run.Restarts))
	}
	fmt.Fprintf(out, "plan      holds %s; %.1f new connections/s\n", snatplan.Group(r.Plan.Holds), r.Plan.NewPerSecond)
	fmt.Fprintf(out, "took      %.2f s for %.0f s, %s events, %.1f million/s\n", r.Took, run.Virtual, snatplan.Group(run.Events), r.PerSec/1e6)
	if r.Report != "" {
		fmt.Fprintln(out, "Report with plots: "+r.Report)
	}
	return errors.Join(err)
}

func snatReport(s snatplan.Scenario, r snatRun) plot.Report {
	series := r.Run.Series
	floats := func(of []int64) []float64 {
		all := make([]float64, len(of))
		for i, n := range of {
			all[i] = float64(n)
		}
		return all
	}
	rate := func(of []int64) []float64 {
		all := make([]float64, len(of))
		for i := 1; i < len(of); i++ {
			all[i] = float64(of[i]-of[i-1]) / (series.Second[i] - series.Second[i-1])
		}
		return all
	}
	held := plot.Chart{
		Title: "Connections", YLabel: "connections", Note: "Plan: the minimum cut of the path. Ports: in use or held down, at the stage that refused most.",
		Series: []plot.Series{
			{Name: "held", X: series.Second, Y: floats(series.Held)},
			{Name: "waiting", X: series.Second, Y: floats(series.Waiting)},
			{Name: "ports", X: series.Second, Y: floats(series.Busy)},
			{Name: "plan", X: []float64{0, r.Run.Virtual}, Y: []float64{float64(r.Plan.Holds), float64(r.Plan.Holds)}},
		},
	}
	if s.Traffic.Policy == snatplan.Open {
		held.Series = held.Series[:3] // nobody wants the plan's number of them
	}
	rates := plot.Chart{Title: "Connects", YLabel: "per second", Series: []plot.Series{
		{Name: "opened", X: series.Second, Y: rate(series.Opened)}, {Name: "failed", X: series.Second, Y: rate(series.Failed)},
	}}
	syns := plot.Bars{Title: "Opened by SYN", Unit: "connections", Names: []string{"opened"}, Note: "A SYN without a port vanishes; the kernel sends the next ones after 1, 3, 7, 15, 31 and 63 s."}
	for i, n := range r.Run.WaitedFor {
		syns.Groups = append(syns.Groups, plot.Group{Name: fmt.Sprintf("after %d s", 1<<i-1), Values: []float64{float64(n)}})
	}
	table := plot.Table{Title: "Stages", Header: []string{"stage", "most connections", "most ports in use or held down", "refused"}}
	for _, st := range r.Run.Stages {
		table.Rows = append(table.Rows, []string{st.Name, snatplan.Group(st.Peak), snatplan.Group(st.PeakHeld), snatplan.Group(st.Refused)})
	}
	return plot.Report{
		Title: "weir snat simulate", When: time.Now(), Verdict: r.Verdict, OK: r.Run.TimedOut+r.Run.Errors == 0,
		Facts: []plot.Fact{
			{Name: "connects", Value: snatplan.Group(r.Run.Attempts)},
			{Name: "most held", Value: snatplan.Group(r.Run.Peak)},
			{Name: "the path holds", Value: snatplan.Group(r.Plan.Holds)},
			{Name: "opened/s, last half", Value: fmt.Sprintf("%.1f", r.Run.OpenPerSecond)},
			{Name: "failed", Value: snatplan.Group(r.Run.TimedOut + r.Run.Errors)},
			{Name: "events", Value: snatplan.Group(r.Run.Events)},
		},
		Figures: []plot.Figure{held, rates, syns}, Tables: []plot.Table{table},
		Method: fmt.Sprintf("weir %s\nvirtual time %.0f s in %.2f s, seed %d", strings.Join(os.Args[1:], " "), r.Run.Virtual, r.Took, r.Run.Seed),
	}
}
