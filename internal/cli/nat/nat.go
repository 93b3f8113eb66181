package nat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/cid"
	"github.com/weir-lb/weir/internal/terminal"
)

// natFlags are the flags of `weir nat`.
type natFlags struct {
	cli.ServeFlags
	config             udpnat.Config
	natTimeout         time.Duration
	destinationTimeout time.Duration
	loss               float64
	sizeLimit          string
	truncate           string
	affinity           string
	cidLength          int
	nodes              []uint
	cluster            []string
	clusterToken       string
	offload            string
	json, quiet        bool
}

func newNATCommand() *cobra.Command {
	f := &natFlags{}
	cmd := &cobra.Command{
		Use:   "nat LISTEN... -- DESTINATION...",
		Short: "Put a UDP NAT and load balancer with a console in front of some servers",
		Long: `Put a UDP NAT and load balancer in front of some servers, without root and without a file.

Every client gets an address of its own in the eyes of the destinations, and keeps its destination while it sends. LISTEN
and DESTINATION are HOST:PORT; a LISTEN of :PORT means every address. With one LISTEN the "--" may be left out. Flags may
also follow the destinations.

Destinations are watched: one that answers nothing is stale, its clients move with their next datagram, and after
--destination-timeout one of them tries it again.

With the privileges for it (docs/privileges.md), established flows are forwarded in the kernel, by a program in front of the
sockets; new flows, time-outs, faults and the console stay in user space. --offload none turns that off.

Commands are read from standard input, line by line: help lists them. On a terminal there is editing, history (arrow keys)
and completion (tab). The end of the input does not end the program. The same commands work over --admin, as root:
curl --unix-socket /run/weir/nat.sock --data-binary info http://localhost/console`,
		Example: `  weir nat :5784 localhost:15784 localhost:25784 localhost:35784
  weir nat 127.0.0.1:5784 "[::1]:5784" -- 192.0.2.7:5684 192.0.2.8:5684 --reverse --dtls-filter
  weir nat :5784 localhost:15784 --loss 20 --size-limit 100:50 --seed 7
  weir nat :5784 localhost:15784 localhost:25784 --cid-length 6 --node-ids 1,2
  weir nat :5784 localhost:15784 localhost:25784 --cid-length 6 --cluster unix:/run/node1.sock,unix:/run/node2.sock
  echo rebalance | curl --unix-socket /run/weir/nat.sock --data-binary @- http://localhost/console`,
		RunE: func(cmd *cobra.Command, args []string) error {
			listen, destinations, err := natAddresses(cmd, args)
			if err != nil {
				return cli.UsageError(err)
			}
			if err := f.check(); err != nil {
				return cli.UsageError(err)
			}
			return runNAT(cmd, f, listen, destinations)
		},
	}
	flags := cmd.Flags()
	c := &f.config
	flags.BoolVarP(&c.Reverse, "reverse", "r", false, "reverse address update: a reply from another destination moves the client there")
	flags.BoolVarP(&c.DTLSFilter, "dtls-filter", "x", false, "drop what clients send that is no DTLS record")
	f.addForgetting(flags)
	f.addFaults(flags)
	flags.StringVar(&f.affinity, "affinity", "flow", "what keeps to one destination: flow (a client's port) or source (a client's address)")
	flags.IntVar(&f.cidLength, "cid-length", 0, "steer DTLS records by connection ids of so many bytes, the first of which is the node id")
	flags.UintSliceVar(&f.nodes, "node-ids", nil, "node ids of the destinations, in their order (default 1, 2, ...)")
	cli.OldFlag(cmd, "nodes", "", "node-ids")
	flags.StringSliceVar(&f.cluster, "cluster", nil, "admin addresses of the destinations, in their order, as for --admin: node ids and owners of sessions follow the cluster, as does which node drains; needs --cid-length")
	flags.StringVar(&f.clusterToken, "cluster-token-file", "", "file with the token of these admin addresses (default $"+cli.EnvAdminToken+")")
	flags.IntVar(&c.Workers, "workers", 0, "workers (default one per core)")
	flags.BoolVar(&c.Unconnected, "count-strays", false, "count replies from elsewhere also without --reverse; costs some speed")
	flags.StringVar(&f.offload, "offload", offloadAuto, "forward established flows in the kernel: auto (where that is possible), tcx (or fail), none")
	flags.BoolVar(&f.json, "json", false, "print the statistics as JSON at the end; console answers go to standard error")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, cli.QuietUsage)
	f.ServeFlags.Add(cmd, cli.NATPart())
	cmd.SetFlagErrorFunc(natFlagError)
	return cmd
}

// addForgetting declares when clients and destinations are forgotten.
func (f *natFlags) addForgetting(flags *pflag.FlagSet) {
	c := &f.config
	cli.DurationVar(flags, &f.natTimeout, "nat-timeout", 30*time.Second, "forget a client after this silence, from 1s; 0 never")
	cli.DurationVar(flags, &f.destinationTimeout, "destination-timeout", udpnat.DefaultBackendTimeout, "a destination without any answer for this long is stale; 0 never")
	flags.IntVar(&c.UnansweredLimit, "unanswered", udpnat.DefaultUnansweredLimit, "it is stale already after so many datagrams without any answer ...")
	cli.DurationVar(flags, &c.UnansweredAfter, "unanswered-after", udpnat.DefaultUnansweredAfter, "... the first of them this long ago; --unanswered 0 waits for --destination-timeout")
	flags.IntVarP(&c.MaxEntries, "max-entries", "n", udpnat.DefaultMaxEntries, "clients at a time; for a further one the oldest that no destination answered is forgotten")
}

func (f *natFlags) addFaults(flags *pflag.FlagSet) {
	faults := &f.config.Faults
	flags.Float64VarP(&f.loss, "loss", "d", 0, "percent of datagrams to drop, both ways")
	flags.Float64VarP(&faults.LossForward, "loss-forward", "f", 0, "percent of datagrams to destinations to drop")
	flags.Float64VarP(&faults.LossBackward, "loss-backward", "b", 0, "percent of datagrams to clients to drop")
	flags.StringVarP(&f.sizeLimit, "size-limit", "s", "", "LIMIT[:PERCENT]: drop PERCENT (100) of the datagrams to destinations longer than LIMIT bytes")
	flags.StringVar(&f.truncate, "truncate", "", "LIMIT[:PERCENT]: cut PERCENT (100) of the datagrams to destinations longer than LIMIT bytes")
	flags.Float64Var(&faults.ReorderPercent, "reorder", 0, "percent of datagrams to destinations to send later")
	cli.DurationVar(flags, &faults.ReorderDelay, "reorder-delay", 50*time.Millisecond, "how much later")
	cli.DurationVar(flags, &faults.ReorderJitter, "reorder-jitter", 0, "and up to so much more")
	flags.Uint64Var(&faults.Seed, "seed", 0, "of the faults, and if not 0 of the choice of destinations")
}

// check converts the texts and zero values of the command line into what the data path takes.
func (f *natFlags) check() (err error) {
	faults := &f.config.Faults
	if f.loss != 0 {
		if faults.LossForward != 0 || faults.LossBackward != 0 {
			return errors.New("--loss excludes --loss-forward and --loss-backward")
		}
		faults.LossForward, faults.LossBackward = f.loss, f.loss
	}
	if faults.SizeLimit, faults.SizePercent, err = limitAndPercent("--size-limit", f.sizeLimit); err != nil {
		return err
	}
	if faults.TruncateLimit, faults.TruncatePercent, err = limitAndPercent("--truncate", f.truncate); err != nil {
		return err
	}
	if f.natTimeout < 0 || f.natTimeout > 0 && f.natTimeout < time.Second {
		return fmt.Errorf("--nat-timeout %s: write at least 1s, or 0 for never", f.natTimeout)
	}
	if f.destinationTimeout < 0 {
		return fmt.Errorf("--destination-timeout %s: write a positive time, or 0 for never", f.destinationTimeout)
	}
	f.config.BackendTimeout = f.destinationTimeout
	if f.destinationTimeout == 0 {
		f.config.BackendTimeout = udpnat.Never
	}
	if f.config.UnansweredLimit == 0 {
		f.config.UnansweredLimit = -1
	}
	if f.affinity != "flow" && f.affinity != "source" {
		return fmt.Errorf("--affinity %q: write flow or source", f.affinity)
	}
	switch {
	case f.offload != offloadAuto && f.offload != offloadTCX && f.offload != offloadNone:
		return fmt.Errorf("--offload %q: write auto, tcx or none", f.offload)
	case f.cidLength < 0 || f.cidLength > cid.MaxLength:
		return fmt.Errorf("--cid-length %d: write 1 to %d bytes, or 0 for none", f.cidLength, cid.MaxLength)
	case f.cidLength == 0 && len(f.nodes) > 0:
		return errors.New("--nodes needs --cid-length")
	case f.config.MaxEntries < 1:
		return fmt.Errorf("--max-entries %d: write at least 1", f.config.MaxEntries)
	}
	for _, id := range f.nodes {
		if id > 255 {
			return fmt.Errorf("--nodes: %d does not fit in the one byte of a node id", id)
		}
	}
	return nil
}

func limitAndPercent(flag, text string) (limit int, percent float64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	first, second, both := strings.Cut(text, ":")
	percent = 100
	limit, err = strconv.Atoi(first)
	if err == nil && both {
		percent, err = strconv.ParseFloat(second, 64)
	}
	if err != nil || limit < 1 || !(percent >= 0 && percent <= 100) {
		return 0, 0, fmt.Errorf("%s %q: write bytes, or bytes:percent, such as 100:50", flag, text)
	}
	return limit, percent, nil
}

func runNAT(cmd *cobra.Command, f *natFlags, listen, destinations []string) error {
	screen := &natScreen{out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr(), line: terminal.NewLive(cmd.ErrOrStderr()), json: f.json, quiet: f.quiet}
	log, err := cli.NewLogger(screen, f.Log)
	if err != nil {
		return cli.UsageError(err)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if err := f.checkCluster(destinations); err != nil {
		return cli.UsageError(err)
	}
	spec, err := natSpec(ctx, f, listen, destinations)
	if err != nil {
		return cli.UsageError(err)
	}
	var loop *control.Loop // set before the data path runs
	config := f.config
	config.Log = log
	config.OnLiveness = balancing.Liveness(&loop, log)
	datapath, closeAll, err := openDatapath(config, f.offload, log)
	if err != nil {
		return err
	}
	defer closeAll()
	// The loop's log about generations is for services; here the console answers.
	loop = control.New(datapath, control.Options{Log: slog.New(levelHandler{log.Handler(), slog.LevelWarn}), Query: balancing.QueryNode, Watch: balancing.WatchNode})
	if err := loop.SetSpec(spec); err != nil {
		return err
	}
	console := udpnat.NewConsole(datapath, loop, udpnat.ConsoleOptions{Resolve: resolveUDP, Exit: cancel, Admin: f.adminOf(destinations)})
	stdin, err := screen.attach(os.Stdin, console)
	if err != nil {
		return err
	}
	defer screen.detach()
	screen.hello(datapath, destinations)
	err = cli.Serve(ctx, f.ServeFlags, log, natAdmin(loop, datapath, console), nil, datapath.Run,
		func(ctx context.Context) error { return loop.Run(ctx, nil, nil) },
		func(ctx context.Context) error { screen.live(ctx, datapath); return nil },
		func(ctx context.Context) error { go stdin(ctx, cancel); <-ctx.Done(); return nil })
	screen.detach()
	if err != nil {
		return err
	}
	return f.printResult(cmd.OutOrStdout(), datapath)
}

// printResult prints what was counted until the end.
func (f *natFlags) printResult(w io.Writer, datapath *udpnat.Datapath) error {
	stats := datapath.Stats()
	if f.json {
		return cli.PrintJSON(w, stats.JSON())
	}
	_, err := fmt.Fprintln(w, stats.Table())
	return err
}

// natAdmin is what the admin API answers.
func natAdmin(loop *control.Loop, datapath *udpnat.Datapath, console *udpnat.Console) admin.Config {
	return admin.Config{
		Ready:    loop.Ready,
		Status:   func() any { return natStatus(loop, datapath) },
		Metrics:  func() []metrics.Sample { return append(balancing.Samples(loop), datapath.Samples()...) },
		Flows:    func(yield func(v1.Flow) bool) { datapath.Flows(loop.Snapshot(), yield) },
		Override: balancing.Override(loop),
		Plots:    balancing.Plots(),
		Console:  console.Serve,
	}
}

func natStatus(loop *control.Loop, datapath *udpnat.Datapath) v1.NATStatus {
	stats := datapath.Stats()
	return v1.NATStatus{BalancerStatus: loop.Status(), NAT: stats.JSON()}
}

// levelHandler passes records from a level on.
type levelHandler struct {
	slog.Handler
	level slog.Level
}

func (h levelHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

// natScreen is the operator's interface: a terminal with a prompt, or pipes.
type natScreen struct {
	out, errOut io.Writer
	json, quiet bool
	terminal    atomic.Pointer[term.Terminal] // nil: no terminal, or no longer
	restore     func()
	line        *terminal.Live // on standard error, where there is no prompt

	console *os.File   // the terminal with the prompt
	mu      sync.Mutex // of what follows
	rates   string     // for the prompt
	shown   string     // the prompt on the terminal
}
