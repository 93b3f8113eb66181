package lb

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
)

func newLBShowCommand() *cobra.Command {
	var view status.View
	cmd := &cobra.Command{
		Use:   "show [SERVICE]",
		Short: "Show services, addresses, backends and what they carry",
		Long: `Show the services, addresses and backends in force. With the kernel and queue data paths also packets by reason, and
packets, bytes and flows by backend: totals since the tables were made, and with --watch rates since the last line. With queues also
how packets spread over them.`,
		Example: `  weir lb show
  weir lb show coaps --json
  weir lb show --watch --every 5s`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			shown := status.Counters{Dated: view.Watching()}
			return view.Show(cmd, func(ctx context.Context, running *client.Client) (look status.Look, err error) {
				now, err := running.LBStatus(ctx)
				if err != nil {
					return look, err
				}
				if len(args) == 1 {
					if now.Services = named(now.Services, args[0]); now.Services == nil {
						return look, fmt.Errorf("no service %q", args[0])
					}
				}
				return status.Look{JSON: status.Shown(now), Text: func(w io.Writer) error { return shown.Write(w, now, time.Now()) }}, nil
			})
		},
	}
	view.AddWatch(cmd, "again and again, with rates, until interrupted")
	view.Add(cmd, cli.LBPart(), cli.NATPart())
	cmd.ValidArgsFunction = cli.AtMost(1, serviceNames(&view.ClientFlags, false))
	return cmd
}

// named are the services of that name; nil: there is none.
func named(services []v1.ServiceStatus, name string) []v1.ServiceStatus {
	for i := range services {
		if services[i].Name == name {
			return services[i : i+1]
		}
	}
	return nil
}
