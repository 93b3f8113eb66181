package lb

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/terminal"
)

func newLBFlowsCommand() *cobra.Command {
	var flags cli.ClientFlags
	var query client.FlowQuery
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "List the flows that the data path remembers",
		Example: `  weir lb flows --service coaps --limit 20
  weir lb flows --client 192.0.2.0/24 --state established --sort expires
  weir lb flows --json | jq -r '.flows[].backend' | sort | uniq -c`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.Client()
			if err != nil {
				return err
			}
			if query.Limit == 0 { // the server would take its default
				return cli.UsageError(fmt.Errorf("--limit 0: write 1 to %d", v1.MaxFlows))
			}
			list, err := client.Flows(cmd.Context(), query)
			if err != nil {
				return err
			}
			if flags.AsJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), list)
			}
			return printFlows(cmd.OutOrStdout(), list)
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
	flags.Add(cmd, cli.LBPart(), cli.NATPart())
	cli.CompleteFlag(cmd, "service", serviceNames(&flags, false))
	cli.CompleteFlag(cmd, "backend", backendNames(&flags))
	return cmd
}

func printFlows(w io.Writer, list *v1.FlowList) error {
	table := terminal.NewTable(w, false)
	fmt.Fprintln(table, "PROTOCOL\tCLIENT\tVIP\tSERVICE\tBACKEND\tEXPIRES\tSTATE")
	for _, f := range list.Flows {
		expires := "never"
		if f.Expires >= 0 {
			expires = time.Duration(f.Expires * float64(time.Second)).Round(time.Second).String()
		}
		backend := f.Backend
		if f.Source != "" {
			backend += " as " + f.Source
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Protocol, f.Client, f.VIP, f.Service, backend, expires, f.State)
	}
	if list.More {
		fmt.Fprintln(table, "… and more; raise --limit or filter")
	}
	return table.Flush()
}
