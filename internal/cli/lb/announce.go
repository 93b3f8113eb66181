package lb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/announce"
	"github.com/weir-lb/weir/internal/control/announce/bgp"
	"github.com/weir-lb/weir/internal/control/announce/holder"
	"github.com/weir-lb/weir/internal/control/redundancy"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// newAnnouncer returns what announces the addresses of a loop, which is set before it runs.
func newAnnouncer(loop **control.Loop, balancer *balancer, incomplete func() string, log *slog.Logger) *announce.Announcer {
	return announce.New(announce.Options{
		Log: log, Detached: balancer.detached, Incomplete: incomplete, Drivers: []announce.Driver{bgp.New(log), holder.New(log)},
		Applied: func() (*lb.Snapshot, <-chan struct{}) {
			_, changed := (*loop).Applied()
			return (*loop).Snapshot(), changed
		},
	})
}

// checkPrivileges checks those that the virtual routers of a snapshot need, and its probes through tunnels.
func checkPrivileges(s *lb.Snapshot) error {
	if s == nil {
		return nil
	}
	if slices.ContainsFunc(s.Services, func(s *lb.Service) bool { return s.Health != nil && s.Health.Tunnel }) {
		if err := privilege.Check(privilege.LBRunTunnel); err != nil {
			return err
		}
	}
	if s.Announce == nil || len(s.Announce.VRRP) == 0 {
		return nil
	}
	return privilege.Check(privilege.LBRunVRRP)
}

// announcing runs a data path as configured does, announces while it runs, and shares the state of its flows.
func announcing(announcer *announce.Announcer, shared *redundancy.Sync, loop *control.Loop, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return configured(loop, func(ctx context.Context) error {
			return announcer.Serve(ctx, func(ctx context.Context) error { return sharing(ctx, shared, run) })
		})(ctx)
	}
}

func announceSamples(loop *control.Loop, announcer *announce.Announcer) []metrics.Sample {
	if snapshot := loop.Snapshot(); snapshot == nil || snapshot.Announce == nil {
		return nil
	}
	return metrics.Of(announcer.Timings())
}

// detached says why the kernel data path forwards nothing: each of its interfaces is gone.
func detached(interfaces []v1.EBPFInterface) string {
	for i := range interfaces {
		if !interfaces[i].Gone {
			return ""
		}
	}
	return "the data path is attached to no interface"
}

// announceRoutes are the paths of the admin API by which an operator withdraws everything, and ends that.
func announceRoutes(announcer *announce.Announcer) []admin.Route {
	var routes []admin.Route
	for path, withdrawn := range map[string]bool{"withdraw": true, "resume": false} {
		routes = append(routes, admin.Route{Pattern: "POST /announce/" + path, Answer: func(*http.Request) (any, error) {
			if announcer.Status() == nil {
				return nil, errors.New("the configuration announces nothing; add an announce section")
			}
			announcer.SetWithdrawn(withdrawn)
			return v1.AnnounceAnswer{State: announcer.State()}, nil
		}})
	}
	return routes
}

// unwellAnnouncements returns an error when an operator should look at what is announced.
func unwellAnnouncements(a *v1.AnnounceStatus) error {
	if a == nil {
		return nil
	}
	if a.Error != "" {
		return fmt.Errorf("announce: %s", a.Error)
	}
	for i := range a.VRRP {
		if r := &a.VRRP[i]; r.Problem != "" {
			return fmt.Errorf("virtual router %d on %s, %s: %s", r.ID, r.Interface, r.Family, r.Problem)
		}
	}
	if a.BGP == nil {
		return nil
	}
	for i := range a.BGP.Neighbours {
		if n := &a.BGP.Neighbours[i]; n.Problem != "" {
			return fmt.Errorf("BGP neighbour %s: %s", n.Address, n.Problem)
		}
	}
	if len(a.BGP.Filtered) > 0 {
		return fmt.Errorf("BGP: a policy drops %s", a.BGP.Filtered)
	}
	return nil
}

func newLBAnnounceCommand() *cobra.Command {
	var view status.View
	cmd := &cobra.Command{
		Use:   "announce",
		Short: "Show which addresses are announced, and withdraw them",
		Long: `Show which addresses of the running load balancer are announced, why others are not, sessions with routers and
which addresses this machine holds.
Exit codes: 0 all well, 1 something needs attention, nothing is to be announced, or no program answers.`,
		Example: `  weir lb announce
  weir lb announce --json | jq .bgp.neighbours
  weir lb announce --json | jq '.vrrp[] | .state'
  weir lb announce withdraw    # before maintenance of this machine
  weir lb announce resume`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var found *v1.AnnounceStatus
			err := view.Show(cmd, func(ctx context.Context, running *client.Client) (look status.Look, err error) {
				now, err := running.LBStatus(ctx)
				if err != nil {
					return look, err
				}
				if found = now.Announce; found == nil {
					return look, errors.New("the configuration of the load balancer announces nothing; add an announce section")
				}
				return status.Look{JSON: found, Text: func(w io.Writer) error { return status.Announce(w, found) }}, nil
			})
			if err != nil {
				return err
			}
			return unwellAnnouncements(found)
		},
	}
	view.AddWatch(cmd, "again and again, until interrupted")
	view.Add(cmd, cli.LBPart())
	cmd.AddCommand(
		newAnnounceChange("withdraw", "Withdraw everything that is announced", "Withdraw all prefixes, so that routers and hosts send the traffic to other load balancers. With graceful_shutdown in the configuration the\nprefixes are first announced as less preferred for that time. It lasts until weir lb announce resume, or until a restart.", (*client.Client).Withdraw),
		newAnnounceChange("resume", "End weir lb announce withdraw", "Announce again what can be served.", (*client.Client).Announce),
	)
	return cmd
}

func newAnnounceChange(verb, short, long string, do func(*client.Client, context.Context) (*v1.AnnounceAnswer, error)) *cobra.Command {
	var flags cli.ClientFlags
	cmd := &cobra.Command{
		Use: verb, Short: short, Long: long, Args: cobra.NoArgs,
		Example: fmt.Sprintf("  weir lb announce %[1]s\n  weir lb announce %[1]s --admin unix:/run/weir.sock --json", verb),
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, err := flags.Client()
			if err != nil {
				return err
			}
			answer, err := do(running, cmd.Context())
			if err != nil {
				return err
			}
			if flags.AsJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), answer)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "announcing: %s\n", answer.State)
			return err
		},
	}
	flags.Add(cmd, cli.LBPart())
	return cmd
}
