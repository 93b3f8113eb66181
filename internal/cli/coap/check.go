package coap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/coap/check"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/terminal"
)

// checkFlags are the flags of `weir coap check`.
type checkFlags struct {
	securityFlags
	only                        []string
	paths                       map[string]string
	timeout, notify, ackTimeout time.Duration
	junit                       string
	list, asJSON, trace         bool
}

func newCheckCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check URI",
		Short: "Check a CoAP server with the list of the ETSI plugtests",
		Long: `Run the cases of the ETSI CoAP plugtests (CORE, LINK, BLOCK, OBS, and over DTLS those of DTLS) against a server over UDP, DTLS, TCP or
TLS, and print a verdict for each: pass, fail, or inconclusive, where the server lacks what the case needs. A failure names what was
sent, what was expected and what came, with the RFC and section. All cases take about four minutes; the server's resources change.

The server needs the resources of the list, such as /test and /obs; --path names others that it has instead.

The exit code is 0 when no case failed, 1 when one did, 2 when the server does not answer or the command line is wrong.`,
		Example: `  weir coap check coap://localhost:5683
  weir coap check coap://localhost:5683 --only CORE,BLOCK --junit coap.xml
  weir coap check coap://localhost:5683 --only TD_COAP_CORE_01 --trace
  weir coap check coaps://localhost:5684 --only DTLS --json
  weir coap check coap://localhost:5683 --only OBS --path /obs=/time
  weir coap check --list`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				return listCases(cmd, f.only)
			}
			if err := cli.OneURI(cmd, args); err != nil {
				return err
			}
			return runCheck(cmd, args[0], &f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.only, "only", nil, "groups or ids of cases, such as CORE,BLOCK or TD_COAP_CORE_01 (default all)")
	flags.StringToStringVar(&f.paths, "path", nil, "path of the server instead of one of the list, as /obs=/time; may be repeated")
	cli.DurationVar(flags, &f.timeout, "timeout", 10*time.Second, "limit for each handshake and each exchange")
	cli.DurationVar(flags, &f.notify, "notify-timeout", 15*time.Second, "limit for a notification")
	cli.DurationVar(flags, &f.ackTimeout, "ack-timeout", 2*time.Second, "first retransmission (RFC 7252 ACK_TIMEOUT)")
	flags.BoolVar(&f.list, "list", false, "list the cases instead of running them")
	flags.BoolVar(&f.trace, "trace", false, "show the messages of each case that did not pass")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.StringVar(&f.junit, "junit", "", "file for the result as JUnit XML")
	f.add(flags)
	return cmd
}

// listCases prints the cases that the words name.
func listCases(cmd *cobra.Command, only []string) error {
	cases, err := check.Select(only)
	if err != nil {
		return cli.UsageError(fmt.Errorf("--only: %w", err))
	}
	table := terminal.NewTable(cmd.OutOrStdout(), false)
	fmt.Fprintln(table, "ID\tRESOURCE\tTITLE")
	for _, c := range cases {
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.ID, c.Resource, c.Title)
	}
	return table.Flush()
}

// config is what the flags say.
func (f *checkFlags) config(uri string) (check.Config, error) {
	cfg := check.Config{URI: uri, Known: f.files.RawKey != "", Only: f.only, Paths: f.paths, Timeout: f.timeout, Notify: f.notify, AckTimeout: f.ackTimeout}
	target, err := client.ParseTarget(uri)
	if err != nil {
		return cfg, err
	}
	if len(target.Path)+len(target.Query) > 0 {
		return cfg, fmt.Errorf("URI %q has a path; name the server alone, and single resources by --path, such as --path /test=/%s", uri, strings.Join(target.Path, "/"))
	}
	if f.timeout <= 0 || f.notify <= 0 || f.ackTimeout <= 0 {
		return cfg, errors.New("--timeout, --notify-timeout, --ack-timeout: give more than 0")
	}
	if _, err := check.Select(f.only); err != nil {
		return cfg, fmt.Errorf("--only: %w", err)
	}
	for _, path := range f.paths {
		if !strings.HasPrefix(path, "/") {
			return cfg, fmt.Errorf("--path: %q does not begin with a slash; write it as /obs=/time", path)
		}
	}
	if err := check.Resources(f.paths); err != nil {
		return cfg, fmt.Errorf("--path: %w", err)
	}
	if err := measuring.Replaceable(f.junit); err != nil {
		return cfg, fmt.Errorf("--junit %s: %w", f.junit, err)
	}
	cfg.Security, err = f.security()
	return cfg, err
}

func runCheck(cmd *cobra.Command, uri string, f *checkFlags) error {
	cfg, err := f.config(uri)
	if err != nil {
		return cli.UsageError(err)
	}
	progress := measuring.NewProgress(cmd.ErrOrStderr())
	cfg.Begin = func(number, all int, c *check.Case) {
		progress.Show(float64(number)/float64(all), fmt.Sprintf("%s %s", c.ID, c.Title))
	}
	out, err := check.Run(cmd.Context(), cfg)
	progress.Clear()
	switch {
	case errors.Is(err, context.Canceled):
		return measuring.Interrupted(err)
	case err != nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "weir: %v\n", err)
		return &cli.ExitError{Code: cli.ExitUsage} // without a pointer to the help: the command line may be right
	}
	if err := measuring.WriteReport(f.junit, func(w io.Writer) error { return check.WriteJUnit(w, out) }); err != nil {
		return err
	}
	if f.asJSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), out)
	} else {
		err = printCheck(cmd.OutOrStdout(), out, f.trace)
	}
	if err == nil && out.Failed > 0 {
		return &cli.ExitError{Code: cli.ExitFailure} // it has been shown
	}
	return err
}

// printCheck prints the verdicts, and behind them why.
func printCheck(w io.Writer, out *v1.CoAPCheck, trace bool) error {
	table := terminal.NewTable(w, false)
	fmt.Fprintln(table, "CASE\tVERDICT\tSECONDS\tTITLE")
	for _, c := range out.Cases {
		fmt.Fprintf(table, "%s\t%s\t%.1f\t%s\n", c.ID, c.Verdict, c.Seconds, c.Title)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	for _, c := range out.Cases {
		if c.Verdict == check.Pass {
			continue
		}
		fmt.Fprintf(&b, "\n%s: %s\n", c.ID, c.Verdict)
		if c.Expected == "" {
			fmt.Fprintf(&b, "  %s\n", c.Reason)
		} else {
			fmt.Fprintf(&b, "  sent      %s\n  expected  %s (%s)\n  received  %s\n", c.Sent, c.Expected, c.Reference, c.Received)
		}
		for _, line := range c.Trace {
			if trace {
				fmt.Fprintf(&b, "    %s\n", line)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s: %d passed, %d failed, %d inconclusive\n", out.URI, out.Passed, out.Failed, out.Inconclusive)
	_, err := io.WriteString(w, b.String())
	return err
}
