package lb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func newLBStatusCommand() *cobra.Command {
	var view status.View
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show configuration, last error and how many backends are up",
		Long: `Show the running load balancer's state in a few lines.
Exit codes: 0 all well, 1 the last change was refused, a service has no backend, a neighbour of BGP needs attention, no node of
a cluster answers or two have one node id, or no program answers.`,
		Example: `  weir lb status
  weir lb status --admin unix:/run/weir.sock --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var found *v1.LBStatus
			err := view.Show(cmd, func(ctx context.Context, running *client.Client) (look status.Look, err error) {
				found, err = running.LBStatus(ctx)
				return status.Look{JSON: found, Text: func(w io.Writer) error { return status.Balancer(w, found) }}, err
			})
			if err != nil {
				return err
			}
			return unwell(&found.BalancerStatus)
		},
	}
	view.Add(cmd, cli.LBPart(), cli.NATPart())
	return cmd
}

// unwell returns an error when an operator should check the balancer.
func unwell(status *v1.BalancerStatus) error {
	if status.Error != "" {
		return fmt.Errorf("the last change was refused: %s", status.Error)
	}
	if err := unwellSync(status.Sync); err != nil {
		return err
	}
	if err := unwellAnnouncements(status.Announce); err != nil {
		return err
	}
	for i := range status.Services {
		if s := &status.Services[i]; s.State != "up" {
			return fmt.Errorf("service %s is %s", s.Name, s.State)
		}
		switch c := status.Services[i].Cluster; {
		case c == nil:
		case c.Old:
			return fmt.Errorf("service %s: no node of its cluster has answered for %.0f s", status.Services[i].Name, c.Age)
		case c.Conflict != "":
			return fmt.Errorf("service %s: %s", status.Services[i].Name, c.Conflict)
		}
	}
	return nil
}

// newLBOverrideCommands returns the commands drain, undrain, down and up, which differ only in their words.
func newLBOverrideCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, c := range []struct {
		verb, short, done string
		do                func(c *client.Client, ctx context.Context, service, backend string) (*v1.OverrideAnswer, error)
	}{
		{"drain", "Give a backend, or all of a service, no new flows", "drained: old flows stay, new ones go elsewhere", (*client.Client).Drain},
		{"undrain", "Take back drain, down or up", "back to what configuration and probes say", (*client.Client).Undrain},
		{"down", "Take a backend, or a whole service, out at once", "down: nothing is sent there", (*client.Client).Down},
		{"up", "Give a backend new flows whatever its probe says", "up, whatever the probe says", (*client.Client).Up},
	} {
		var flags cli.ClientFlags
		cmd := &cobra.Command{
			Use:   c.verb + " SERVICE[/BACKEND]",
			Short: c.short,
			Long:  c.short + ". The change outlives a reload of the configuration, not a restart.",
			Example: fmt.Sprintf(`  weir lb %[1]s coaps/a
  weir lb %[1]s coaps --admin unix:/run/weir.sock`, c.verb),
			Args: func(_ *cobra.Command, args []string) error {
				if len(args) != 1 {
					return cli.UsageError(errors.New("name one SERVICE or SERVICE/BACKEND"))
				}
				return nil
			},
			RunE: func(cmd *cobra.Command, args []string) error {
				client, err := flags.Client()
				if err != nil {
					return err
				}
				service, backend, _ := strings.Cut(args[0], "/")
				answer, err := c.do(client, cmd.Context(), service, backend)
				if err != nil {
					return err
				}
				if flags.AsJSON {
					return cli.PrintJSON(cmd.OutOrStdout(), answer)
				}
				if _, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], c.done); err != nil || c.verb != "undrain" || backend != "" {
					return err
				}
				return printStillOverridden(cmd, client, service)
			},
		}
		flags.Add(cmd, cli.LBPart(), cli.NATPart())
		cmd.ValidArgsFunction = cli.AtMost(1, serviceNames(&flags, true))
		commands = append(commands, cmd)
	}
	return commands
}

// printStillOverridden names the backends of a service that an operator changed one by one: that outlives the service's undrain.
func printStillOverridden(cmd *cobra.Command, running *client.Client, service string) error {
	status, err := running.LBStatus(cmd.Context())
	if err != nil {
		return err
	}
	for i := range status.Services {
		s := &status.Services[i]
		for j := range s.Backends {
			b := &s.Backends[j]
			if s.Name != service || !strings.HasSuffix(b.Override, " by "+lb.FromOperator.String()) {
				continue
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%[1]s/%[2]s: still %[3]s; weir lb undrain %[1]s/%[2]s\n", s.Name, b.Name, b.Override); err != nil {
				return err
			}
		}
	}
	return nil
}
