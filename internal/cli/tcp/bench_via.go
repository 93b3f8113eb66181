package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/tcpscale/scalebench"
)

// tcpViaFlags are those of `weir tcp bench` through the lab.
type tcpViaFlags struct {
	paths  []string
	events map[string]*time.Duration // by kind
	config scalebench.ViaConfig
}

func (f *tcpViaFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.paths, "via", []string{scalebench.PathLoopback}, "paths, one after the other: loopback, or as root through a lab of network namespaces: "+strings.Join(scalebench.Paths()[1:], ", "))
	flags.IntVar(&f.config.Backends, "backends", 4, "servers behind the balancer, each in a namespace of its own")
	flags.IntVar(&f.config.Flows, "flows", 0, "limits.flows of Weir's file (default: enough)")
	cli.DurationVar(flags, &f.config.Away, "away", 2*time.Second, "how long a balancer that is restarted or killed stays away")
	f.events = map[string]*time.Duration{}
	for _, e := range []struct{ kind, about string }{
		{scalebench.KillBackend, "so long into the hold, kill a backend's processes"},
		{scalebench.CutBackend, "so long into the hold, take a backend's link down: silence"},
		{scalebench.DrainBackend, "so long into the hold, drain a backend at the balancer, then its server"},
		{scalebench.RestartBalancer, "so long into the hold, interrupt weir lb run and start it again"},
		{scalebench.KillBalancer, "so long into the hold, kill -9 weir lb run and start it again"},
	} {
		f.events[e.kind] = new(time.Duration)
		cli.DurationVar(flags, f.events[e.kind], e.kind, 0, e.about)
	}
}

// read checks the flags before anything begins.
func (f *tcpViaFlags) read(cmd *cobra.Command, hold time.Duration) (err error) {
	for _, kind := range scalebench.Kinds() {
		if cmd.Flags().Changed(kind) {
			f.config.Events = append(f.config.Events, scalebench.Plan{Kind: kind, At: *f.events[kind]})
		}
	}
	lab := false
	for i, path := range f.paths {
		if slices.Contains(f.paths[:i], path) {
			return fmt.Errorf("--via %s: named twice", path)
		}
		if path == scalebench.PathLoopback {
			continue
		}
		lab = true
		f.config.Path = path
		if err := f.config.Validate(hold); err != nil {
			return err
		}
	}
	switch {
	case len(f.paths) == 0:
		return errors.New("--via: no path")
	case f.config.Away < 0 || f.config.Away > time.Hour:
		return fmt.Errorf("--away %v: 0s to 1h", f.config.Away)
	case !lab && len(f.config.Events) > 0:
		return fmt.Errorf("--%s: there is no balancer on loopback; choose another path with --via", f.config.Events[0].Kind)
	}
	f.config.Binary, err = os.Executable()
	return err
}

// checkTCPPath says which capabilities a path needs and lacks.
func checkTCPPath(path string) error {
	switch path {
	case scalebench.PathLoopback:
		return nil
	case "tcx", "xdp", "l2dsr", "nfqueue-fast":
		return privilege.Check(privilege.TCPKernel)
	}
	return privilege.Check(privilege.TCPNamespace)
}

// run takes each path in turn. Those that were taken are returned with an error.
func (f *tcpViaFlags) run(ctx context.Context, config scalebench.Config, progress func() *tcpProgress) (results []*scalebench.Result, err error) {
	for _, path := range f.paths {
		if err := checkTCPPath(path); err != nil {
			return results, err
		}
	}
	for _, path := range f.paths {
		p, each, via := progress(), config, f.config
		via.Path, via.Events = path, slices.Clone(f.config.Events)
		each.Tick, via.Say = p.show, func(text string) { p.say("%s", text) }
		if len(f.paths) > 1 {
			p.say("via %s", path)
		}
		var result *scalebench.Result
		if path == scalebench.PathLoopback {
			result, err = scalebench.Run(ctx, each)
		} else {
			result, err = scalebench.RunVia(ctx, each, via)
		}
		p.end()
		if err != nil {
			if len(f.paths) > 1 {
				err = fmt.Errorf("--via %s: %w", path, err)
			}
			break
		}
		if results = append(results, result); ctx.Err() != nil {
			break // interrupted: what there is
		}
	}
	scalebench.Compare(results)
	return results, err
}

// showTCPBench prints results and writes the report; the verdicts are its error.
func showTCPBench(cmd *cobra.Command, results []*scalebench.Result, asJSON bool, report string) error {
	if len(results) == 0 {
		return nil
	}
	var err error
	switch {
	case asJSON:
		for _, r := range results {
			err = errors.Join(err, cli.PrintLine(cmd.OutOrStdout(), r))
		}
	case len(results) == 1:
		err = results[0].Write(cmd.OutOrStdout())
	default:
		err = scalebench.WriteAll(cmd.OutOrStdout(), results)
	}
	if err == nil {
		err = measuring.WriteReport(report, func(w io.Writer) error { return scalebench.WriteAllHTML(w, results) })
	}
	if err != nil {
		return err
	}
	var failed []string
	for _, r := range results {
		if !r.OK {
			failed = append(failed, r.Path()+": "+r.Verdict)
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case asJSON:
		return &cli.ExitError{Code: cli.ExitFailure} // the JSON says why
	case len(results) == 1:
		return errors.New(results[0].Verdict)
	}
	return errors.New(strings.Join(failed, "; "))
}
