package lb

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func queryStatus(ctx context.Context, c *client.Client) (*v1.LBStatus, error) { return c.LBStatus(ctx) }

// serviceNames completes the names of a running balancer's services; with backends also SERVICE/BACKEND.
func serviceNames(f *cli.ClientFlags, backends bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		found, help := cli.Query(cmd, f, queryStatus)
		if found == nil {
			return help, cli.NoFiles
		}
		var names []string
		for i := range found.Services {
			s := &found.Services[i]
			names = append(names, fmt.Sprintf("%s\t%s, %s backends up", s.Name, s.State, status.BackendsUp(s)))
			for j := range s.Backends {
				if b := &s.Backends[j]; backends {
					names = append(names, fmt.Sprintf("%s/%s\t%v, %.0f %% of new flows", s.Name, b.Name, b.State, 100*b.Share))
				}
			}
		}
		return cli.BeginningWith(names, typed), cli.NoFiles
	}
}

// backendNames completes the names of backends alone.
func backendNames(f *cli.ClientFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		status, help := cli.Query(cmd, f, queryStatus)
		if status == nil {
			return help, cli.NoFiles
		}
		wanted, names := cmd.Flag("service").Value.String(), []string(nil)
		for i := range status.Services {
			for j := range status.Services[i].Backends {
				if wanted == "" || wanted == status.Services[i].Name {
					names = append(names, status.Services[i].Backends[j].Name)
				}
			}
		}
		slices.Sort(names)
		return cli.BeginningWith(slices.Compact(names), typed), cli.NoFiles
	}
}

func reasonNames() []string {
	var names []string
	for reason := range lb.Reason(lb.NumReasons) {
		if name := reason.String(); reason != lb.ReasonNone {
			names = append(names, name)
		}
	}
	return names
}

// Family is weir lb.
func Family() cli.Family {
	return cli.Family{Command: newLBCommand, Values: lbValues, Arguments: lbArguments}
}

func lbValues() map[string][]string {
	return map[string][]string{
		"--tcx-order":              {"first", "last"},
		"--fast":                   {fastAuto, "on", "off"},
		"weir lb flows --protocol": {"tcp", "udp", "sctp", "icmp"},
		"weir lb flows --state":    {"plain", "opening", "established", "closing"},
		"weir lb flows --sort":     {"client", "service", "backend", "expires"},
		"weir lb trace --reason":   reasonNames(),
	}
}

func lbArguments() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"weir lb import nfqlb": cli.Files,
	}
}
