package lb

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
)

func newLBFlowsCommand() *cobra.Command {
	var view status.View
	var query client.FlowQuery
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "List the flows that the data path remembers",
		Example: `  weir lb flows --service coaps --limit 20
  weir lb flows --client 192.0.2.0/24 --state established --sort expires
  weir lb flows --json | jq -r '.flows[].backend' | sort | uniq -c`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if query.Limit == 0 { // the server would take its default
				return cli.UsageError(fmt.Errorf("--limit 0: write 1 to %d", v1.MaxFlows))
			}
			return view.Show(cmd, func(ctx context.Context, running *client.Client) (status.Look, error) {
				list, err := running.Flows(ctx, query)
				return status.Look{JSON: list, Text: func(w io.Writer) error { return status.Flows(w, list) }}, err
			})
		},
	}
	for _, f := range []struct {
		value      *string
		key, usage string
	}{
		{&query.Service, "service", "only flows of this service"},
		{&query.Backend, "backend", "only flows to this backend"},
		{&query.Protocol, "protocol", "only tcp, udp, sctp or icmp"},
		{&query.Client, "client", "only clients with this address or in this prefix"},
		{&query.State, "state", "only plain, opening, established or closing (kernel data path)"},
		{&query.Sort, "sort", "order by client, service, backend or expires; before the limit cuts"},
	} {
		cmd.Flags().StringVar(f.value, f.key, "", f.usage)
	}
	cmd.Flags().IntVar(&query.Limit, "limit", 1000, fmt.Sprintf("at most so many, up to %d", v1.MaxFlows))
	view.Add(cmd, cli.LBPart(), cli.NATPart())
	cli.CompleteFlag(cmd, "service", serviceNames(&view.ClientFlags, false))
	cli.CompleteFlag(cmd, "backend", backendNames(&view.ClientFlags))
	return cmd
}
