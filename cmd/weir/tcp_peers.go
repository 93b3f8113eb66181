package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

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

// flagsOfWeir are those that the other programs have nothing like.
var flagsOfWeir = [...]string{
	"workers", "server-workers", "rate", "in-flight", "misses", "timeout", "payload", "plateau", "stats", "stats-token-file", "serve-stats",
}

// runTCPPeers measures Weir beside others.
func runTCPPeers(cmd *cobra.Command, f tcpLoadFlags, peers tcpPeersFlags, asJSON bool, report string) error {
	var odd []string
	for _, name := range flagsOfWeir {
		if cmd.Flags().Changed(name) {
			odd = append(odd, "--"+name)
		}
	}
	if len(odd) > 0 {
		return usageError(fmt.Errorf("%s with --with: the other programs have no such thing; leave it out", strings.Join(odd, ", ")))
	}
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
		return usageError(err)
	}
	result, err := scalebench.Peers(cmd.Context(), config)
	if err != nil {
		return err
	}
	if asJSON {
		err = printLine(cmd.OutOrStdout(), result)
	} else {
		err = result.Write(cmd.OutOrStdout())
	}
	if err == nil {
		err = writeReport(report, result.WriteHTML)
	}
	switch {
	case err != nil || result.OK:
		return err
	case asJSON:
		return &exitError{code: exitFailure} // the JSON says why
	}
	return errors.New(result.Verdict)
}
