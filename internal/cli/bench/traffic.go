package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
)

// newBenchTrafficCommand is the two ends of `weir bench run nfqueue`, and what other measurements send.
func newBenchTrafficCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "traffic", Short: "Ends of a measurement", Hidden: true,
		Example: `  weir bench traffic sink --at 127.0.0.1:9001 --size 64`,
		Args:    cli.NoSuchCommand, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTrafficSendCommand(), newTrafficPingCommand(), newTrafficSinkCommand(),
		newBenchTrafficTurnCommand(), newBenchTrafficAttackCommand(), newBenchTrafficHandshakesCommand(), newTrafficRespondCommand())
	return cmd
}

// trafficFlags are the flags that sending datagrams and measuring round trips share.
type trafficFlags struct {
	to       string
	sources  []string
	duration time.Duration
}

func (f *trafficFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.to, "to", "", "where to")
	cmd.Flags().StringSliceVar(&f.sources, "source", nil, "addresses to send from")
	cli.DurationVar(cmd.Flags(), &f.duration, "duration", time.Second, "how long")
}

func (f *trafficFlags) parse() (sources []netip.Addr, to netip.AddrPort, err error) {
	for _, text := range f.sources {
		source, err := netip.ParseAddr(text)
		if err != nil {
			return nil, to, cli.UsageError(fmt.Errorf("--source: %w", err))
		}
		sources = append(sources, source)
	}
	if to, err = netip.ParseAddrPort(f.to); err != nil {
		return nil, to, cli.UsageError(fmt.Errorf("--to: %w", err))
	}
	return sources, to, nil
}

func addSizeFlag(cmd *cobra.Command, size *int) {
	cmd.Flags().IntVar(size, "size", 64, "bytes of payload")
}

func newTrafficSendCommand() *cobra.Command {
	var f trafficFlags
	var load bench.Datagrams
	cmd := &cobra.Command{
		Use: "send", Short: "Send datagrams and say how many", Hidden: true, Args: cobra.NoArgs,
		Example: `  weir bench traffic send --source 127.0.0.1 --to 127.0.0.1:9001 --size 64 --rate 1000 --duration 1s`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if load.Sources, load.To, err = f.parse(); err != nil {
				return err
			}
			load.Duration = f.duration
			sent, err := load.Send(cmd.Context())
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(sent)
		},
	}
	f.add(cmd)
	addSizeFlag(cmd, &load.Size)
	cmd.Flags().IntVar(&load.Rate, "rate", 0, "a second; 0: as many as can be")
	return cmd
}

func newTrafficPingCommand() *cobra.Command {
	var f trafficFlags
	var count int
	cmd := &cobra.Command{
		Use: "ping", Short: "Measure round trips to an echo", Hidden: true, Args: cobra.NoArgs,
		Example: `  weir bench traffic ping --source 127.0.0.1 --to 127.0.0.1:7007 --count 3`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sources, to, err := f.parse()
			if err != nil {
				return err
			}
			trips, err := bench.PingPong(cmd.Context(), sources, to, count, f.duration)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(trips)
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&count, "count", 0, "round trips of each source; 0: until the time is over")
	return cmd
}

func newTrafficSinkCommand() *cobra.Command {
	var at string
	var size int
	cmd := &cobra.Command{
		Use: "sink", Short: "Count datagrams until standard input ends", Hidden: true, Args: cobra.NoArgs,
		Example: `  weir bench traffic sink --at 127.0.0.1:9001 --size 64`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, err := netip.ParseAddrPort(at)
			if err != nil {
				return cli.UsageError(fmt.Errorf("--at: %w", err))
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // its end is all that counts
				cancel()
			}()
			got, err := bench.Sink(ctx, address, size, func() { fmt.Fprintln(cmd.OutOrStdout(), bench.SinkReady) })
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(got)
		},
	}
	addSizeFlag(cmd, &size)
	cmd.Flags().StringVar(&at, "at", "", "where to listen")
	return cmd
}

// newBenchTrafficAttackCommand is the generator of `weir bench run floods`.
func newBenchTrafficAttackCommand() *cobra.Command {
	return &cobra.Command{
		Use: "attack", Short: "Flood from a packet socket, as JSON at standard input says", Hidden: true, Args: cobra.NoArgs,
		Example: `  echo '{"Kind":"syn","Interface":"eth0","Gateway":"02:00:00:00:00:01","To":"10.0.0.1:80","Sources":"198.18.0.0/15","Rate":1000,"Duration":1000000000}' |
    weir bench traffic attack`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var attack bench.Attack
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&attack); err != nil {
				return cli.UsageError(fmt.Errorf("standard input: %w", err))
			}
			if err := attack.Validate(); err != nil {
				return cli.UsageError(err)
			}
			sent, err := attack.Run(cmd.Context())
			if err != nil && cmd.Context().Err() == nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(sent)
		},
	}
}
