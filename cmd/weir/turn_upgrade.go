package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/handover"
)

// upgradeAnswer is the answer to POST /upgrade: the new binary was tested, and this process hands over.
type upgradeAnswer struct {
	PID int `json:"pid"` // of the process that hands over
}

// handoverStatus is the part of a gateway's status that is about its process.
type handoverStatus struct {
	PID      int            `json:"pid"`
	Version  string         `json:"version"`
	Handover handover.Stats `json:"keep"`
}

// upgraded is what `weir turn upgrade --json` prints.
type upgraded struct {
	From     string  `json:"from"`
	To       string  `json:"to"`
	PID      int     `json:"pid"` // of the new serving process
	Seconds  float64 `json:"seconds"`
	Records  int     `json:"records"`  // allocations in the journal
	Sockets  int     `json:"sockets"`  // sockets that were handed over
	Upgrades int     `json:"upgrades"` // upgrades of this gateway so far
}

func newTurnUpgradeCommand() *cobra.Command {
	var flags clientFlags
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace a running gateway by the binary that is at its path now; no allocation ends",
		Long: `Has a running gateway replace itself by the binary that is at its path now, and waits until that serves. It is tried
first: if it does not run, nothing happens. Sockets stay open all the time, so that packets wait in them, and if the new
binary does not come to serve, the old one is back. It is what SIGUSR2 to the gateway does. The same binary restarts it.`,
		Example: `  install -m 755 weir.new /usr/local/bin/weir && weir turn upgrade
  weir turn upgrade --admin unix:/run/weir.sock --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			done, err := upgradeGateway(ctx, client)
			if err != nil {
				return err
			}
			if flags.asJSON {
				return printJSON(cmd.OutOrStdout(), done)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "upgraded from %s to %s in %.0f ms: process %d has %d sockets and %d allocations\n",
				done.From, done.To, done.Seconds*1000, done.PID, done.Sockets, done.Records)
			return err
		},
	}
	flags.add(cmd, turnPart())
	durationVar(cmd.Flags(), &wait, "wait", time.Minute, "how long the new process may take until it serves")
	return cmd
}

func upgradeGateway(ctx context.Context, client *admin.Client) (upgraded, error) {
	var before, after handoverStatus
	if err := client.Get(ctx, "/status", nil, &before); err != nil {
		return upgraded{}, err
	}
	started := time.Now()
	var answer upgradeAnswer
	if err := client.Post(ctx, "/upgrade", nil, &answer); err != nil {
		return upgraded{}, fmt.Errorf("not upgraded: %w", err)
	}
	for {
		err := client.Get(ctx, "/status", nil, &after)
		if err == nil && after.PID != before.PID {
			break
		}
		select {
		case <-ctx.Done():
			return upgraded{}, fmt.Errorf("the new process does not serve; the gateway's log says why: %w", errors.Join(ctx.Err(), err))
		case <-time.After(10 * time.Millisecond):
		}
	}
	if after.Handover.Upgrades <= before.Handover.Upgrades {
		return upgraded{}, fmt.Errorf("the new binary did not come to serve: the old one is back, as process %d; its log says why", after.PID)
	}
	return upgraded{
		From: before.Version, To: after.Version, PID: after.PID, Seconds: time.Since(started).Seconds(),
		Records: after.Handover.Journal.Records, Sockets: after.Handover.Sockets, Upgrades: after.Handover.Upgrades,
	}, nil
}
