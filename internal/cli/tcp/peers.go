package tcp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/tcpscale/scalebench"
)

// tcpPeersFlags are those of a comparison with other testers.
type tcpPeersFlags struct {
	with   []string
	rounds int
}

func (f *tcpPeersFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.with, "with", nil, "testers to compare with in the same run: "+strings.Join(scalebench.PeerNames(), ", ")+"; needs root")
	cmd.Flags().IntVar(&f.rounds, "rounds", 2, "with --with: rounds, in alternating order")
}

// obeyed are the bench's flags that a comparison obeys. Any other one is refused: a flag that is new is not ignored.
var obeyed = [...]string{"with", "rounds", "connections", "hold", "heartbeat", "json", "report"}

// check refuses flags of the bench that have no meaning together.
func (f *tcpPeersFlags) check(cmd *cobra.Command) error {
	if len(f.with) == 0 {
		for _, name := range []string{"with", "rounds"} {
			if cmd.Flags().Changed(name) {
				return cli.UsageError(fmt.Errorf("--%s: name testers with --with %s", name, strings.Join(scalebench.PeerNames(), ",")))
			}
		}
		return nil
	}
	var odd []string
	for _, flag := range visited(cmd.LocalNonPersistentFlags().VisitAll) {
		if flag.Changed && !slices.Contains(obeyed[:], flag.Name) {
			odd = append(odd, "--"+flag.Name)
		}
	}
	if len(odd) > 0 {
		return cli.UsageError(fmt.Errorf("%s with --with: the comparison has no such thing; leave it out", strings.Join(odd, ", ")))
	}
	return nil
}

// visited are all that visit shows.
func visited[T any](visit func(func(T))) (all []T) {
	visit(func(one T) { all = append(all, one) })
	return all
}

// runTCPPeers measures Weir and others.
func runTCPPeers(cmd *cobra.Command, f tcpLoadFlags, peers tcpPeersFlags, asJSON bool, report string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own binary: %w", err)
	}
	config := scalebench.PeerConfig{
		With: peers.with, Rounds: peers.rounds, Connections: f.config.Connections, Hold: f.hold, Heartbeat: f.config.Heartbeat,
		Weir:     func(args ...string) *exec.Cmd { return exec.Command(self, args...) },
		Progress: func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) },
	}
	if err := config.Validate(); err != nil {
		return cli.UsageError(err)
	}
	if err := privilege.Check(privilege.TCPPeers); err != nil {
		return err
	}
	result, err := scalebench.Peers(cmd.Context(), config)
	if err != nil {
		return err
	}
	if asJSON {
		err = cli.PrintLine(cmd.OutOrStdout(), result)
	} else {
		err = result.Write(cmd.OutOrStdout())
	}
	err = errors.Join(err, measuring.WriteReport(report, result.WriteHTML)) // what took minutes is not lost with standard output
	switch {
	case err != nil || result.OK:
		return err
	case asJSON:
		return &cli.ExitError{Code: cli.ExitFailure} // the JSON says why
	}
	return errors.New(result.Verdict)
}
