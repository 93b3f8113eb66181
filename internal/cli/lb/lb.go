package lb

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/announce"
	"github.com/weir-lb/weir/internal/control/health"
	"github.com/weir-lb/weir/internal/control/redundancy"
	"github.com/weir-lb/weir/internal/datapath/doctor"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func newLBCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lb",
		Short: "Run a layer-4 load balancer and talk to a running one",
		Example: `  weir lb run -c weir.yaml --datapath ebpf --interface eth0,eth1
  weir lb show --watch
  weir lb flows --client 192.0.2.0/24 --sort expires
  weir lb drain coaps/a
  weir lb set weight coaps/a 5
  weir lb trace --reason no_backend,flow_table_full
  weir lb stop`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newLBRunCommand(), newLBStatusCommand(), newLBShowCommand(), newLBFlowsCommand(),
		newLBTraceCommand(), newLBStopCommand(), newLBDecapCommand(), newLBRulesCommand(), newLBImportCommand(), newLBAnnounceCommand())
	cmd.AddCommand(newLBOverrideCommands()...)
	cmd.AddCommand(newLBChangeCommands()...)
	cmd.AddCommand(newLBApplyCommand(), newLBConfigCommand(), newLBDiffCommand())
	cmd.AddCommand(newLBKeepCommands()...)
	return cmd
}

func newLBRunCommand() *cobra.Command {
	var file cli.ConfigFile
	var datapath string
	var flags cli.ServeFlags
	var kernel ebpfFlags
	var queues nfqueueFlags
	var source sourceFlags
	var ownersFile, tablesFile string
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the load balancer of a configuration file",
		Long: `Run the load balancer of a configuration file until interrupted.

The file is watched: a change (also an atomic rename, also SIGHUP without a change) is compiled and applied as a whole.
A bad change is refused with one line that names file, line, key and remedy; the last good configuration stays, and
the error shows in the log, in 'weir lb status' and in the metrics.

With --datapath ebpf, packets are steered in the kernel by programs and tables kept below --pin-path: they go on while
weir is down, a restart takes them over with every flow, and only 'weir lb stop' ends them.

With --source, the configuration comes from a server instead of a file, such as the operator in Kubernetes: it is followed, and the server
learns what became of it. With --state, a restart while the server is away serves the last valid configuration.

With --datapath nfqueue, packets that iptables rules hand to netfilter queues get a fwmark, and routing by mark sends them on
(mode mark).`,
		Example: `  weir lb run -c weir.yaml --datapath udp
  weir lb run -c weir.yaml --datapath ebpf --interface eth0,eth1
  weir lb run -c weir.yaml --datapath ebpf --interface veth0 --hook tcx --pin-path /sys/fs/bpf/weir/edge
  weir lb run -c weir.yaml --datapath nfqueue --queue 0:3
  weir lb run -c weir.yaml --admin unix:/run/weir.sock --log json
  weir lb run --source https://operator.weir:8443 --source-token-file /run/token --state /var/lib/weir/lb.yaml --datapath ebpf -i eth0
  kill -HUP PID     # of this balancer: read the file again`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := cli.NewLogger(cmd.ErrOrStderr(), flags.Log)
			if err != nil {
				return cli.UsageError(err)
			}
			for state, file := range map[string]*string{"owners": &ownersFile, "tables": &tablesFile, "flows": &queues.flows} {
				if !cmd.Flags().Changed(state + "-state") {
					*file = flags.AdminFile("." + state)
				}
			}
			return runLB(cmd.Context(), file.Path, datapath, ownersFile, tablesFile, &source, &kernel, &queues, flags, log)
		},
	}
	file.Add(cmd, " (YAML; see weir check)")
	cmd.Args = source.args(&file)
	source.add(cmd)
	cmd.Flags().StringVar(&datapath, "datapath", "udp", "what carries the packets: ebpf, nfqueue or udp")
	cmd.Flags().StringVar(&ownersFile, "owners-state", "", "file that keeps which node of a CoAP cluster has which sessions, for a restart while the nodes do not answer; empty for none (default: the socket of --admin with .owners instead of .sock)")
	cli.CompleteFlag(cmd, "owners-state", cli.FilesOf("owners"))
	cmd.Flags().StringVar(&tablesFile, "tables-state", "", "file that keeps the recent lists of backends, so that earlier Maglev tables outlive a restart (generations); empty for none (default: the socket of --admin with .tables instead of .sock)")
	cli.CompleteFlag(cmd, "tables-state", cli.FilesOf("tables"))
	kernel.add(cmd)
	queues.add(cmd)
	flags.Add(cmd, cli.LBPart())
	return cmd
}

func runLB(ctx context.Context, path, datapath, ownersFile, tablesFile string, source *sourceFlags, kernel *ebpfFlags, queues *nfqueueFlags, flags cli.ServeFlags, log *slog.Logger) (err error) {
	var loop *control.Loop // set before the data path runs
	from, err := source.open(path, log)
	if err != nil {
		return cli.UsageError(err)
	}
	log.Info("starting", "datapath", datapath, "configuration", from.name())
	balancer, err := openDatapath(datapath, kernel, queues, log, balancing.Liveness(&loop, log))
	if err != nil {
		return err
	}
	defer func() { balancer.close(err, log) }()
	var announcer *announce.Announcer
	shared := newSync(&loop, balancer, func() { announcer.Check() }, log)
	announcer = newAnnouncer(&loop, balancer, shared.Incomplete, log)
	loop = control.New(balancer.datapath, control.Options{
		Log: log, Network: balancer.network, Query: balancing.QueryNode, Watch: balancing.WatchNode, OwnersFile: ownersFile, TablesFile: tablesFile, Source: from.status(), Announce: announcer.Status, Sync: shared.Status, WriteBack: source.write,
	})
	if err := from.first(loop); err != nil {
		return err
	}
	if err := checkPrivileges(loop.Snapshot()); err != nil {
		return err
	}
	if loop.Snapshot() != nil {
		warnOfLostReplies(loop.Snapshot(), log)
	}
	adminConfig := admin.Config{
		Ready:  loop.Ready,
		Status: func() any { return balancer.statusOf(loop) },
		Metrics: func() []metrics.Sample {
			return slices.Concat(balancing.Samples(loop), announceSamples(loop, announcer), balancer.samplesOf(loop))
		},
		Flows:    func(yield func(v1.Flow) bool) { balancer.flowsOf(loop, yield) },
		Applied:  loop.WatchApplied,
		Override: balancing.Override(loop),
		Plots:    balancing.Plots(),

		Configuration: balancing.Configuration(loop),
	}
	if balancer.console != nil {
		adminConfig.Console = balancer.console(loop)
	}
	adminConfig.Trace, adminConfig.Routes = balancer.trace, announceRoutes(announcer)
	alive := func(ctx context.Context) {
		loop.Respond(ctx)
		if loop.Snapshot() != nil { // before, the data path does not run
			balancer.respond(ctx)
		}
	}
	return cli.Serve(ctx, flags, log, adminConfig, from.reload, announcing(announcer, shared, loop, balancer.datapath.Run), from.run, cli.Notify(log, alive))
}

// close ends the data path of a run that ended with err.
func (b *balancer) close(err error, log *slog.Logger) {
	if err == nil {
		log.Info("the balancer ends as requested") // a log without this record before a start tells of a crash
	}
	end := b.datapath.Close
	if err != nil && b.abandon != nil {
		end = b.abandon
	}
	closed := end()
	if closed == nil && err == nil && b.stop != nil {
		closed = b.stop()
	}
	if closed != nil {
		log.Error("close data path", "error", closed)
	}
}

// configured runs a data path once it has a configuration, which sizes its tables.
func configured(loop *control.Loop, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			now, changed := loop.Applied()
			if now.Generation > 0 {
				return run(ctx)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			}
		}
	}
}

// warnOfLostReplies warns of DSR services whose replies this machine would drop.
func warnOfLostReplies(snapshot *lb.Snapshot, log *slog.Logger) {
	findings, err := doctor.OwnSource(snapshot)
	if err != nil {
		log.Warn("cannot check whether replies of DSR backends pass", "error", err)
	}
	for _, f := range findings {
		log.Warn(f.What, "event", "replies_may_be_lost", "remedy", f.Remedy)
	}
}

// balancer is an opened data path with what the admin API shows of it. console is nil if there is none.
type balancer struct {
	datapath control.Datapath
	samples  func() []metrics.Sample
	respond  func(context.Context) // returns when the goroutines that do the work have answered
	flows    func(snapshot *lb.Snapshot, yield func(v1.Flow) bool)
	console  func(*control.Loop) func(ctx context.Context, in io.Reader, out io.Writer) error
	network  *health.Network                                                                           // of probes; nil: any
	table    redundancy.Table                                                                          // whose flows can be shared; nil: they cannot
	abandon  func() error                                                                              // Close for a start that failed; nil: Close
	stop     func() error                                                                              // after Close, removes what outlives the process; nil: that stays
	status   func(v1.BalancerStatus) any                                                               // adds what the data path knows; nil: nothing
	detached func() string                                                                             // why what is attached forwards nothing, empty: it does; nil: always
	trace    func(ctx context.Context, query url.Values, write func(line any, flush bool) error) error // nil: not here
}

// What an opened data path says of itself is asked for once it has a configuration.

func (b *balancer) statusOf(loop *control.Loop) any {
	s := loop.Status()
	if b.status == nil || s.Generation == 0 {
		return s
	}
	return b.status(s)
}

func (b *balancer) samplesOf(loop *control.Loop) []metrics.Sample {
	if loop.Snapshot() == nil {
		return nil
	}
	return b.samples()
}

func (b *balancer) flowsOf(loop *control.Loop, yield func(v1.Flow) bool) {
	if snapshot := loop.Snapshot(); snapshot != nil {
		b.flows(snapshot, yield)
	}
}
