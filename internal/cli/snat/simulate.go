package snat

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/terminal"
)

func newSnatSimulateCommand() *cobra.Command {
	var f snatFlags
	var report string
	cmd := &cobra.Command{
		Use:   "simulate [KIND | FILE]",
		Short: "Replay connections over a path in virtual time, ten million in seconds",
		Long: `Replay connections over the stages of a path in virtual time: arrivals and bursts, lifetimes, SYN retries at 1, 3, 7,
15, 31 and 63 s, ports held down after FIN and RST, idle expiry, TIME_WAIT, allocations that grow. The same seed gives the
same result.

Policy keep opens what each replica wants and reconnects. Policy open has connections arrive at --rate, whoever is served.
Policy original is the tester that the source document was measured with: blocking connects that stop at the first error,
heartbeats only afterwards, a server that closes silent sockets, and a restart with back-off when a write fails.`,
		Example: `  weir snat simulate azure-lb --nodes 2 --ips 2 --ports 8000 --replicas 2 --policy original --duration 1h --report saw-tooth.html
  weir snat simulate azure-nat --ips 16 --nodes 50 --replicas 50 --policy open --rate 16000 --lifetime 10s --duration 640s --report ten-million.html
  weir snat simulate gcp-nat --ports 64 --max-ports 8192 --policy open --rate 50 --lifetime 1m
  weir snat simulate -c examples/snat/churn.yaml --scenario "closed by FIN" --json | jq .run.opened_per_second`,
		RunE: func(cmd *cobra.Command, args []string) error {
			traffic := f.scenario.Traffic
			scenarios, err := f.read(cmd)
			if err != nil {
				return err
			}
			if len(scenarios) != 1 {
				return cli.UsageError(fmt.Errorf("--scenario: %s has %d scenarios; name one: %s", f.config.Path, len(scenarios), strings.Join(files.ScenarioNames(scenarios), "; ")))
			}
			s := scenarios[0]
			if f.config.Path != "" {
				overrideTraffic(cmd, &s, traffic)
				if err := s.Validate(); err != nil {
					return cli.UsageError(asFlag(err))
				}
			}
			return simulateSnat(cmd, s, report, f.json)
		},
	}
	f.register(cmd)
	t, flags := &f.scenario.Traffic, cmd.Flags()
	cli.DurationVar(flags, &t.Duration, "duration", 5*time.Minute, "virtual time")
	flags.Uint64Var(&t.Seed, "seed", 1, "seed; the same seed gives the same result")
	flags.StringVar(&t.Balance, "balance", "even", "of connections over server nodes and servers: even or random, as a hash does")
	flags.StringVar(&t.Spread, "spread", "exponential", "of lifetimes: exponential or fixed")
	cli.DurationVar(flags, &t.Heartbeat, "heartbeat", 15*time.Second, "policy original: the client's INTERVAL")
	cli.DurationVar(flags, &t.Validate, "validate", 45*time.Second, "policy original: the server's INTERVAL")
	measuring.AddReportFlag(cmd, &report, "write a page with plots to this file")
	return cmd
}

// overrideTraffic lets the flags that make sense together with a file override it.
func overrideTraffic(cmd *cobra.Command, s *snat.Scenario, t snat.Traffic) {
	for name, set := range map[string]func(){
		"policy": func() { s.Traffic.Policy = t.Policy }, "duration": func() { s.Traffic.Duration = t.Duration }, "seed": func() { s.Traffic.Seed = t.Seed },
	} {
		if cmd.Flags().Changed(name) {
			set()
		}
	}
}

func simulateSnat(cmd *cobra.Command, s snat.Scenario, report string, asJSON bool) error {
	line := measuring.NewProgress(cmd.ErrOrStderr())
	defer line.Clear()
	run, err := snat.Simulate(cmd.Context(), s, func(done float64) {
		if time.Since(line.Started) > 2*time.Second {
			line.Show(done, "simulate")
		}
	})
	took := time.Since(line.Started)
	switch {
	case cmd.Context().Err() != nil:
		return measuring.Interrupted(cmd.Context().Err())
	case err != nil:
		return cli.UsageError(err)
	}
	line.Clear()
	out := v1.SNATSimulation{Run: run, Plan: s.Plan(), Took: took.Seconds(), PerSec: float64(run.Events) / took.Seconds(), Report: report}
	out.Verdict = snatVerdict(s, run, out.Plan)
	if err := measuring.WriteReport(report, func(w io.Writer) error { return snatReport(s, out).WriteHTML(w) }); err != nil {
		return err
	}
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), out)
	}
	return writeRun(cmd.OutOrStdout(), out)
}

// snatVerdict is what a run says, in one sentence.
func snatVerdict(s snat.Scenario, run snat.Run, p snat.Plan) string {
	failed := run.TimedOut + run.Errors
	switch {
	case s.Traffic.Policy == snat.Original && run.Evicted > 0:
		return fmt.Sprintf("The testers move between %s and %s connections, %.0f on average; the path holds %s.", snat.Group(run.Lowest), snat.Group(run.Peak), run.Mean, snat.Group(p.Holds))
	case failed > 0:
		return fmt.Sprintf("%.2f %% of %s connects failed; at most %s connections were held, %.0f/s opened. %s was full first, after %s.", 100*float64(failed)/float64(run.Attempts),
			snat.Group(run.Attempts), snat.Group(run.Peak), run.OpenPerSecond, run.BrokeFirst, virtual(*run.BrokeAt))
	case run.Delayed > 0:
		return fmt.Sprintf("No connect failed, %s of %s waited for a SYN retry; at most %s connections were held.", snat.Group(run.Delayed), snat.Group(run.Opened), snat.Group(run.Peak))
	}
	return fmt.Sprintf("All %s connects succeeded at once; at most %s connections were held.", snat.Group(run.Attempts), snat.Group(run.Peak))
}

// virtual writes a moment of virtual time: 7.2 s, 12 min 5 s.
func virtual(seconds float64) string {
	if seconds < 120 {
		return fmt.Sprintf("%.1f s", seconds)
	}
	return fmt.Sprintf("%d min %d s", int(seconds)/60, int(seconds)%60)
}

// stageRow is what a run's tables say of a stage.
func stageRow(st snat.StageRun) []string {
	first := "–"
	if st.FirstRefused != nil {
		first = virtual(*st.FirstRefused)
	}
	return []string{
		st.Name, snat.Group(st.Capacity), snat.Group(st.Peak), snat.Group(st.Fullest) + " of " + snat.Group(st.PerKey), snat.Group(st.PeakHeld),
		snat.Group(st.Refused), first,
	}
}

func writeRun(out io.Writer, r v1.SNATSimulation) error {
	w := terminal.NewTable(out, false)
	fmt.Fprintln(w, "STAGE\tHOLDS\tMOST CONNECTIONS\tFULLEST KEY\tMOST PORTS IN USE OR HELD DOWN\tREFUSED\tFIRST AFTER")
	for _, st := range r.Run.Stages {
		fmt.Fprintln(w, strings.Join(stageRow(st), "\t"))
	}
	err := w.Flush()
	run := r.Run
	fmt.Fprintf(out, "\n%s\n", r.Verdict)
	fmt.Fprintf(out, "connects  %s, opened %s (%.1f/s in the last half), delayed %s, timed out %s, errors %s\n", snat.Group(run.Attempts), snat.Group(run.Opened),
		run.OpenPerSecond, snat.Group(run.Delayed), snat.Group(run.TimedOut), snat.Group(run.Errors))
	fmt.Fprintf(out, "held      peak %s, last half from %s to the end: mean %.0f, last %s\n", snat.Group(run.Peak), snat.Group(run.Lowest), run.Mean, snat.Group(run.Last))
	if run.Restarts > 0 {
		fmt.Fprintf(out, "testers   %s connections evicted for silence, %s restarts\n", snat.Group(run.Evicted), snat.Group(run.Restarts))
	}
	fmt.Fprintf(out, "plan      holds %s of %s, at most %s; %.1f new connections/s\n", snat.Group(r.Plan.Holds), snat.Group(r.Plan.Demand), snat.Group(r.Plan.Ceiling), r.Plan.NewPerSecond)
	fmt.Fprintf(out, "took      %.2f s for %.0f s, %s events, %.1f million/s\n", r.Took, run.Virtual, snat.Group(run.Events), r.PerSec/1e6)
	if r.Report != "" {
		fmt.Fprintln(out, "Report with plots: "+r.Report)
	}
	return errors.Join(err)
}
