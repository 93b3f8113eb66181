package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/keep"
)

type gatewayFlags struct {
	config       string
	drainTimeout time.Duration
	serve        serveFlags
	keep         keepFlags
}

func newTurnGatewayCommand() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:    "gateway [-c FILE] [TURN-URI]",
		Short:  "Run a TURN gateway",
		Hidden: true, // until it is whole
		RunE:   func(cmd *cobra.Command, _ []string) error { return runTurnGateway(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.config, "config", "c", "", "YAML file")
	flags.DurationVar(&f.drainTimeout, "drain-timeout", 0, "the longest wait for allocations to end after SIGTERM; wins over drain.timeout")
	f.serve.add(cmd, "")
	f.keep.add(cmd)
	return cmd
}

func runTurnGateway(cmd *cobra.Command, f *gatewayFlags) error {
	log, err := newLogger(cmd.ErrOrStderr(), f.serve.log)
	if err != nil {
		return usageError(err)
	}
	return f.keep.run(cmd, log, func(ctx context.Context, k *keep.Keep) error {
		signals, release := turnSignals()
		defer release()
		text, err := os.ReadFile(f.config)
		if err != nil {
			return usageError(fmt.Errorf("configuration: %w", err))
		}
		c, document, err := config.Decode[gateway.Config](f.config, text)
		if err != nil {
			return usageError(err)
		}
		if err := c.Validate(); err != nil {
			_ = document
			return usageError(err)
		}
		c = c.WithDefaults()
		if cmd.Flags().Changed("drain-timeout") {
			c.Drain.Timeout = f.drainTimeout
		}
		g, err := gateway.Open(c, gateway.Options{Log: log, Keeper: gatewayKeeper(k)})
		if err != nil {
			return err
		}
		if dropped := k.Settle(); dropped > 0 {
			log.Warn("kept sockets that nothing needs any more are closed", "sockets", dropped)
		}
		door := turnDoor(g, func() int64 { return time.Now().UnixNano() }, false)
		keepDoor(&door, k, g)
		return serve(ctx, f.serve, log, door, nil, g.Run, func(ctx context.Context) error {
			k.Ready()
			drainGateway(ctx, signals, g, c.Drain, log)
			return nil
		})
	})
}
