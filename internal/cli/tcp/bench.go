package tcp

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/scalebench"
)

// tcpBenchFlags are the flags of `weir tcp bench`.
type tcpBenchFlags struct {
	tcpLoadFlags
	peers         tcpPeersFlags
	servers       workerCount
	report, serve string
	feed          tcpFeedFlags
	via           tcpViaFlags
	json          bool
	namespace     bool
}

func newTCPBenchCommand() *cobra.Command {
	var f tcpBenchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Hold N connections between a server and a client on this machine, and report what that costs",
		Long: `Start servers and clients, as many processes as the open-file limit requires, open --connections through loopback, hold them
with heartbeats, and print: time to establish, memory of kernel and programs for each connection, processor time while they
are held, and how many were lost. Limits that are too low are reported first ('weir tcp doctor'). Ctrl-C ends all.

--via takes them through a lab of network namespaces instead (root): clients, a balancer, and --backends servers behind it;
several paths are compared. Events during the hold show what a path makes of them: a backend killed, cut off or drained,
'weir lb run' restarted or killed. What a lost backend held does not count as lost without a reason; anything else does.

Exit codes: 0 all were established and none was lost without an event, 1 otherwise, 2 wrong usage.`,
		Example: `  weir tcp bench --connections 100000
  weir tcp bench --connections 100000 --hold 2m --report tcp.html
  weir tcp bench --connections 1000000 --hold 2m --heartbeat 1m --rate 15000
  weir tcp bench --connections 100000 --serve-stats 127.0.0.1:9190
  weir tcp bench --connections 20000 --hold 10s --json | jq .verdict
  weir tcp bench --via direct,tcx,xdp,nfqueue --report paths.html
  weir tcp bench --via tcx --heartbeat 5s --kill-backend 30s --restart-balancer 60s --kill-balancer 90s
  weir tcp bench --via nfqueue --connections 20000 --hold 1m --heartbeat 5s --cut-backend 10s --json | jq .via.events
  sudo weir tcp bench --connections 100000 --hold 20s --with fortio,tsung,wrk`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.peers.check(cmd); err != nil {
				return err
			}
			if len(f.peers.with) > 0 {
				return runTCPPeers(cmd, f.tcpLoadFlags, f.peers, f.json, f.report)
			}
			return runTCPBench(cmd, &f)
		},
	}
	f.add(cmd)
	f.peers.add(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.config.Connections, "connections", 100000, "how many to hold")
	cli.DurationVar(flags, &f.hold, "hold", 2*time.Minute, "how long, once all are established or a plateau is found")
	flags.Var(&f.servers, "server-workers", "processes of the server; auto: as many as the open-file limit requires")
	measuring.AddReportFlag(cmd, &f.report, measuring.ReportUsage)
	flags.BoolVar(&f.namespace, "namespace", true, "run in a network namespace of its own, with all ports and a hash table of its size, where we are root")
	flags.BoolVar(&f.json, "json", false, "print the result as JSON")
	f.feed.add(cmd)
	f.via.add(cmd)
	flags.StringVar(&f.serve, "serve-stats", "", "HOST:PORT of a page of its own that shows the run while it lasts; port 0: one that is free")
	f.config.BackoffMin, f.config.BackoffMax = 200*time.Millisecond, 5*time.Second
	return cmd
}

// bench converts the flags into what is measured.
func (f *tcpBenchFlags) bench(cmd *cobra.Command) (config scalebench.Config, err error) {
	config = scalebench.Config{Hold: f.hold, Plateau: f.plateau, Namespace: f.namespace}
	config.ClientWorkers, config.ServerWorkers = int(f.workers), int(f.servers)
	if f.hold < time.Second {
		return config, cli.UsageError(fmt.Errorf("--hold %v: at least 1s", f.hold))
	}
	if err := f.via.read(cmd, f.hold); err != nil {
		return config, cli.UsageError(err)
	}
	config.Client = f.config
	if config.Launcher, err = measuring.TCPWorkers(cmd.ErrOrStderr()); err != nil {
		return config, err
	}
	if err := config.Validate(); err != nil {
		return config, cli.UsageError(err)
	}
	return config, nil
}

func runTCPBench(cmd *cobra.Command, f *tcpBenchFlags) error {
	config, err := f.bench(cmd)
	if err != nil {
		return err
	}
	progress := newTCPProgress(cmd.ErrOrStderr())
	config.Client.ID, config.Command = defaultTCPName(), measuring.TypedCommand()
	feed, err := f.feed.open(progress.say)
	if f.serve != "" && err == nil {
		if _, _, bad := net.SplitHostPort(f.serve); bad != nil {
			return cli.UsageError(fmt.Errorf("--serve-stats %q: write HOST:PORT, such as 127.0.0.1:9190", f.serve))
		}
		if feed != nil {
			return cli.UsageError(errors.New("--serve-stats and --stats: one of them"))
		}
		var stop func()
		if feed, stop, err = serveTCPStats(cmd.Context(), f.serve, config.Client.Connections, progress.say); err == nil {
			defer stop()
		}
	}
	if err != nil {
		return err
	}
	defer feed.Close()
	config.Ends = func(client, server tcpscale.Report) { feed.Post(client, server) }
	results, err := f.via.run(cmd.Context(), config, func() *tcpProgress { return newTCPProgress(cmd.ErrOrStderr()) })
	if shown := showTCPBench(cmd, results, f.json, f.report); err == nil {
		err = shown
	}
	return err
}
