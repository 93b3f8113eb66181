package turn

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
)

func queryUsers(ctx context.Context, c *client.Client) (*v1.TurnUserList, error) {
	return c.Users(ctx, client.UserQuery{Limit: 1000})
}

// userNames completes a column of a gateway's allocations.
func userNames(f *cli.ClientFlags, column func(*v1.TurnUser) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		list, help := cli.Query(cmd, f, queryUsers)
		if list == nil {
			return help, cli.NoFiles
		}
		var names []string
		for i := range list.Users {
			names = append(names, column(&list.Users[i]))
		}
		slices.Sort(names)
		return cli.BeginningWith(slices.Compact(names), typed), cli.NoFiles
	}
}

func completeTurnCat(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return cli.Schemes("udp://", "tcp://", "unix://", "-")(cmd, args, typed)
	case 1:
		return cli.Schemes("turn:", "turns:")(cmd, args, typed)
	case 2:
		return cli.Schemes("udp://", "tcp://")(cmd, args, typed)
	}
	return nil, cli.NoFiles
}

// Family is weir turn.
func Family() cli.Family {
	return cli.Family{Command: newTurnCommand, Values: turnValues, Arguments: turnArguments}
}

func turnValues() map[string][]string {
	return map[string][]string{
		"weir turn cat --log":         {"text", "json", "all:ERROR", "all:WARN", "all:INFO", "all:DEBUG", "all:TRACE"},
		"weir turn users --sort":      {"bytes", "age", "expires", "idle", "user", "client"},
		"weir turn users --transport": {"udp", "tcp", "tls", "dtls"},
		"weir turn bench --transport": {bench.TransportUDP, bench.TransportTCP, bench.TransportDTLS},
		"weir turn bench --direction": {bench.DirectionUp, bench.DirectionDown},
		"weir turn bench --with":      bench.TurnPeers(),
		"weir turn bench --peer":      {"service", "pod"},
		"--platform":                  {bench.PlatformLocal, bench.PlatformKubernetes},
		"--road":                      {bench.TurnPathCat, "direct-channel"},
		"--generator":                 {"iperf", "builtin", bench.GeneratorAuto},
		"--offload":                   {"none", "auto", "tcx", "xdp"},
		"--network":                   {"loopback", "veth", bench.NetworkAuto},
	}
}

func turnArguments() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"weir turn import": cli.AtMost(1, cli.Files), "weir turn cat": completeTurnCat,
	}
}
