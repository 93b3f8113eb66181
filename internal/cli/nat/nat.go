package nat

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
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
	"github.com/weir-lb/weir/internal/steering/lb"
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
	json, quiet        bool
}

func newNATCommand() *cobra.Command {
	f := &natFlags{}
	cmd := &cobra.Command{
		Use:   "nat LISTEN... -- DESTINATION...",
		Short: "Put a UDP NAT and load balancer with a console in front of some servers",
		Long: `Put a UDP NAT and load balancer in front of some servers, without root and without a file.

Every client gets an address of its own in the eyes of the destinations, and keeps its destination while it speaks. LISTEN
and DESTINATION are HOST:PORT; a LISTEN of :PORT means every address. With one LISTEN the "--" may be left out. Flags may
also follow the destinations.

Destinations are watched: one that answers nothing is stale, its clients move with their next datagram, and after
--destination-timeout one of them tries it again.

Commands are read from standard input, line by line: help lists them. On a terminal there is editing, history (arrow keys)
and completion (tab). The end of the input does not end the program. The same commands work over --admin, as root:
curl --unix-socket /run/weir/nat.sock --data-binary info http://localhost/console`,
		Example: `  weir nat :5784 localhost:15784 localhost:25784 localhost:35784
  weir nat 127.0.0.1:5784 [::1]:5784 -- 192.0.2.7:5684 192.0.2.8:5684 --reverse --dtls-filter
  weir nat :5784 localhost:15784 --loss 20 --size-limit 100:50 --seed 7
  weir nat :5784 localhost:15784 localhost:25784 --cid-length 6 --node-ids 1,2
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
	cli.DurationVar(flags, &f.natTimeout, "nat-timeout", 30*time.Second, "forget a client after this silence, from 1s; 0 never")
	cli.DurationVar(flags, &f.destinationTimeout, "destination-timeout", udpnat.DefaultBackendTimeout, "a destination without any answer for this long is stale; 0 never")
	flags.IntVar(&c.UnansweredLimit, "unanswered", udpnat.DefaultUnansweredLimit, "it is stale already after so many datagrams without any answer ...")
	cli.DurationVar(flags, &c.UnansweredAfter, "unanswered-after", udpnat.DefaultUnansweredAfter, "... the first of them this long ago; --unanswered 0 waits for --destination-timeout")
	flags.IntVarP(&c.MaxEntries, "max-entries", "n", udpnat.DefaultMaxEntries, "clients at a time; for a further one the oldest that no destination answered is forgotten")
	flags.Float64VarP(&f.loss, "loss", "d", 0, "percent of datagrams to drop, both ways")
	flags.Float64VarP(&c.Faults.LossForward, "loss-forward", "f", 0, "percent of datagrams to destinations to drop")
	flags.Float64VarP(&c.Faults.LossBackward, "loss-backward", "b", 0, "percent of datagrams to clients to drop")
	flags.StringVarP(&f.sizeLimit, "size-limit", "s", "", "LIMIT[:PERCENT]: drop PERCENT (100) of the datagrams to destinations longer than LIMIT bytes")
	flags.StringVar(&f.truncate, "truncate", "", "LIMIT[:PERCENT]: cut PERCENT (100) of the datagrams to destinations longer than LIMIT bytes")
	flags.Float64Var(&c.Faults.ReorderPercent, "reorder", 0, "percent of datagrams to destinations to send later")
	cli.DurationVar(flags, &c.Faults.ReorderDelay, "reorder-delay", 50*time.Millisecond, "how much later")
	cli.DurationVar(flags, &c.Faults.ReorderJitter, "reorder-jitter", 0, "and up to so much more")
	flags.Uint64Var(&c.Faults.Seed, "seed", 0, "of the faults, and if not 0 of the choice of destinations")
	flags.StringVar(&f.affinity, "affinity", "flow", "what keeps to one destination: flow (a client's port) or source (a client's address)")
	flags.IntVar(&f.cidLength, "cid-length", 0, "steer DTLS records by connection ids of so many bytes, the first of which is the node id")
	flags.UintSliceVar(&f.nodes, "node-ids", nil, "node ids of the destinations, in their order (default 1, 2, ...)")
	cli.OldFlag(cmd, "nodes", "", "node-ids")
	flags.IntVar(&c.Workers, "workers", 0, "workers (default one per core)")
	flags.BoolVar(&c.Unconnected, "count-strays", false, "count replies from elsewhere also without --reverse; costs some speed")
	flags.BoolVar(&f.json, "json", false, "print the statistics as JSON at the end; console answers go to standard error")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, cli.QuietUsage)
	f.ServeFlags.Add(cmd, cli.NATPart())
	cmd.SetFlagErrorFunc(natFlagError)
	return cmd
}

// natAddresses splits the arguments. What follows "--" may hold flags too, as with cf-nat.
func natAddresses(cmd *cobra.Command, args []string) (listen, destinations []string, err error) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		dash = min(1, len(args))
	}
	listen = args[:dash]
	if err := cmd.Flags().Parse(args[dash:]); err != nil {
		return nil, nil, err
	}
	destinations = cmd.Flags().Args()
	switch {
	case len(listen) == 0:
		return nil, nil, errors.New("no address to listen on; write for instance weir nat :5784 localhost:5684")
	case len(destinations) == 0:
		return nil, nil, errors.New("no destination; write for instance weir nat :5784 localhost:5684")
	}
	return listen, destinations, nil
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

// natSpec returns the one service that the arguments describe.
func natSpec(ctx context.Context, f *natFlags, listen, destinations []string) (lb.Spec, error) {
	service := lb.ServiceSpec{Name: "nat", Timeouts: lb.TimeoutsSpec{UDP: lb.Timeout(f.natTimeout)}}
	if f.natTimeout == 0 {
		service.Timeouts.UDP = lb.Timeout(lb.Never)
	}
	for _, text := range listen {
		at, err := resolveListen(ctx, text)
		if err != nil {
			return lb.Spec{}, err
		}
		service.VIPs = append(service.VIPs, udpnat.ListenSpec(at)...)
	}
	if f.affinity == "source" {
		affinity := lb.BySource
		service.Affinity = &affinity
	}
	if f.cidLength > 0 {
		if f.affinity == "source" {
			return lb.Spec{}, errors.New("--cid-length excludes --affinity source")
		}
		var protocol lb.CIDProtocol
		if err := protocol.UnmarshalText([]byte("dtls12")); err != nil {
			return lb.Spec{}, err
		}
		service.CID = &lb.CIDSpec{
			Protocols: []lb.CIDProtocol{protocol},
			Layouts:   []lb.LayoutSpec{{Length: f.cidLength, Owner: &lb.BitsSpec{Offset: 0, Bits: 8}}},
		}
		if len(f.nodes) == 0 {
			for i := range destinations {
				f.nodes = append(f.nodes, uint(i+1))
			}
		}
		if len(f.nodes) != len(destinations) {
			return lb.Spec{}, fmt.Errorf("--node-ids: %d node ids for %d destinations", len(f.nodes), len(destinations))
		}
	}
	for i, text := range destinations {
		addr, err := resolveUDP(ctx, text)
		if err != nil {
			return lb.Spec{}, err
		}
		backend := udpnat.BackendSpec(text, addr)
		if f.cidLength > 0 {
			backend.Nodes = []uint32{uint32(f.nodes[i])}
		}
		service.Backends = append(service.Backends, backend)
	}
	var key lb.HexKey
	if seed := f.config.Faults.Seed; seed != 0 {
		binary.BigEndian.PutUint64(key[:], seed)
	} else if _, err := rand.Read(key[:]); err != nil {
		return lb.Spec{}, err
	}
	return lb.Spec{HashKey: &key, Services: []lb.ServiceSpec{service}}, nil
}

// natFlagError names the flags that stand for Californium's, which have one dash.
func natFlagError(cmd *cobra.Command, err error) error {
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		for theirs, ours := range map[string]string{"tnat=": "--nat-timeout", "tlb=": "--destination-timeout"} {
			if milliseconds, ok := strings.CutPrefix(unknown.GetSpecifiedShortnames(), theirs); ok {
				err = fmt.Errorf("-%s%s is cf-nat's; write %s %sms", theirs, milliseconds, ours, milliseconds)
			}
		}
	}
	return cmd.Root().FlagErrorFunc()(cmd, err)
}

// resolveListen reads HOST:PORT, or :PORT for every address.
func resolveListen(ctx context.Context, text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil && host == "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return netip.AddrPort{}, fmt.Errorf("listen address %q: write a port from 1 to 65535", text)
		}
		return netip.AddrPortFrom(netip.Addr{}, uint16(n)), nil
	}
	return resolveUDP(ctx, text)
}

// resolveUDP turns HOST:PORT into an address, IPv4 before IPv6 where a name has both.
func resolveUDP(ctx context.Context, text string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q: write HOST:PORT, such as localhost:5684 or [::1]:5684", text)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q: write a port from 1 to 65535", text)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addrs) == 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q: %w", text, err)
	}
	best := addrs[0].Unmap()
	for _, a := range addrs {
		if a.Unmap().Is4() {
			best = a.Unmap()
			break
		}
	}
	return netip.AddrPortFrom(best, uint16(port)), nil
}

func runNAT(cmd *cobra.Command, f *natFlags, listen, destinations []string) error {
	screen := &natScreen{out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr(), line: terminal.NewLive(cmd.ErrOrStderr()), json: f.json, quiet: f.quiet}
	log, err := cli.NewLogger(screen, f.Log)
	if err != nil {
		return cli.UsageError(err)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	spec, err := natSpec(ctx, f, listen, destinations)
	if err != nil {
		return cli.UsageError(err)
	}
	var loop *control.Loop // set before the data path runs
	config := f.config
	config.Log = log
	config.OnLiveness = balancing.Liveness(&loop, log)
	datapath, err := balancing.OpenUDP(config)
	if err != nil {
		return cli.UsageError(err)
	}
	defer datapath.Close()
	// The loop's log about generations is for services; here the console answers.
	loop = control.New(datapath, control.Options{Log: slog.New(levelHandler{log.Handler(), slog.LevelWarn})})
	if err := loop.SetSpec(spec); err != nil {
		return err
	}
	console := udpnat.NewConsole(datapath, loop, udpnat.ConsoleOptions{Resolve: resolveUDP, Exit: cancel})
	adminConfig := admin.Config{
		Ready:    loop.Ready,
		Status:   func() any { return natStatus(loop, datapath) },
		Metrics:  func() []metrics.Sample { return append(balancing.Samples(loop), datapath.Samples()...) },
		Flows:    func(yield func(v1.Flow) bool) { datapath.Flows(loop.Snapshot(), yield) },
		Override: balancing.Override(loop),
		Console:  console.Serve,
	}
	stdin, err := screen.attach(os.Stdin, console)
	if err != nil {
		return err
	}
	defer screen.detach()
	screen.hello(datapath, destinations)
	err = cli.Serve(ctx, f.ServeFlags, log, adminConfig, nil, datapath.Run,
		func(ctx context.Context) error { return loop.Run(ctx, nil, nil) },
		func(ctx context.Context) error { screen.live(ctx, datapath); return nil },
		func(ctx context.Context) error { go stdin(ctx, cancel); <-ctx.Done(); return nil })
	screen.detach()
	if err != nil {
		return err
	}
	stats := datapath.Stats()
	if f.json {
		return cli.PrintJSON(cmd.OutOrStdout(), stats.JSON())
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), stats.Table())
	return err
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
