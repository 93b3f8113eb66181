package tcp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// tcpLoadFlags are those of a client, which the benchmark has too.
type tcpLoadFlags struct {
	config  tcpscale.ClientConfig
	workers workerCount
	hold    time.Duration
	plateau time.Duration
}

func (f *tcpLoadFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Float64Var(&f.config.Rate, "rate", 0, "connects a second of all together; 0: as fast as --in-flight allows")
	flags.IntVar(&f.config.InFlight, "in-flight", 256, "maximum of unfinished connects of a worker")
	flags.Var(&f.workers, "workers", "processes of the client; auto: as many as the open-file limit requires")
	cli.DurationVar(flags, &f.config.Heartbeat, "heartbeat", 30*time.Second, "period of each connection, 100ms to 1h")
	flags.IntVar(&f.config.Misses, "misses", 3, "periods without an answer until a connection is lost, 1 to 100")
	cli.DurationVar(flags, &f.config.Timeout, "timeout", 10*time.Second, "of a connect, and of the server's hello after it")
	flags.IntVar(&f.config.Payload, "payload-size", 0, "bytes after each heartbeat, both ways; at most 4096")
	cli.OldFlag(cmd, "payload", "", "payload-size")
	cli.DurationVar(flags, &f.plateau, "plateau", 5*time.Second, "without growth below the target: say at which ceiling")
}

type tcpClientFlags struct {
	tcpLoadFlags
	replicas int
	to       []string
	sources  []string
	ports    string
	asJSON   bool
	quiet    bool
	stats    tcpFeedFlags
	expect   tcpscale.Expect
}

func newTCPClientCommand() *cobra.Command {
	var f tcpClientFlags
	cmd := &cobra.Command{
		Use:   "client --connections N --to HOST:PORT",
		Short: "Keep N connections, with heartbeats both ways, and say what stands in the way",
		Long: `Open connections to 'weir tcp server' and keep them: a lost one is opened again, after a back-off. A connection counts once the
server's program has answered; one that only sits in an accept queue does not. The ramp goes on past errors, each is counted
by its kind, and where it stands still the limit that was hit is named, or known ones that are possible.

With --replicas there are several clients in one command, as if so many pods ran: each has --connections, --rate, --churn and
--workers for itself, a name of its own, and a part of --sources. Whole replicas are those with all of their connections.

--plain is for other servers: TCP alone counts, a zero byte is sent in each period, nothing is expected back.
Latency counts from the moment that a heartbeat was due. Where this program was not scheduled for more than a second, or for more than
1 % of the run (and a second), the result is void, and says so.

Exit codes: 0 the target was reached and nothing was lost; 1 it was not, or something was, or --expect-servers or --expect-spread
is not met, or the result is void; 2 wrong usage.`,
		Example: `  weir tcp client --connections 50000 --to 192.0.2.1:10000 --hold 2m
  weir tcp client --connections 100000 --to 192.0.2.1:10000 --sources 192.0.2.64/29 --rate 5000
  weir tcp client --replicas 10 --connections 10000 --to 192.0.2.1:10000 --stats 192.0.2.9:9190
  weir tcp client --connections 3000 --to 192.0.2.1:10000 --hold 10s --expect-servers 3 --expect-spread 10%
  weir tcp client --connections 1000 --to 192.0.2.1:10000 --churn 100 --close rst --heartbeat 1s
  weir tcp client --connections 2000 --to 192.0.2.1:10000 --source-ports 20000-20999 --hold 30s --json | jq .plateau`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTCPClient(cmd, f) },
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.IntVar(&f.config.Connections, "connections", 1000, "how many to keep, of each replica")
	flags.IntVar(&f.replicas, "replicas", 1, "clients, each as if it were started alone: connections, rate, churn, workers of its own")
	flags.StringVar(&f.config.ID, "id", "", "name in reports, to which replicas add their number (default HOST-PID)")
	flags.StringSliceVar(&f.to, "to", nil, "targets HOST:PORT, over which connections are spread evenly")
	flags.StringSliceVar(&f.sources, "sources", nil, "source prefixes or addresses; by default as the kernel chooses, on loopback as many of 127.0.0.0/8 as are needed")
	flags.StringVar(&f.ports, "source-ports", "", "source ports FIRST-LAST instead of net.ipv4.ip_local_port_range; needs Linux 6.3")
	cli.DurationVar(flags, &f.hold, "hold", 0, "end so long after the target or a plateau is reached; 0: with an interrupt")
	flags.Float64Var(&f.config.Churn, "churn", 0, "connections closed a second, and opened again")
	closing := flags.String("close", "fin", "how --churn closes: fin, or rst without TIME_WAIT")
	cli.DurationVar(flags, &f.config.BackoffMin, "backoff", 200*time.Millisecond, "wait after a failure, doubled once a connection has failed as often as there are targets")
	cli.DurationVar(flags, &f.config.BackoffMax, "backoff-max", 5*time.Second, "longest wait between tries")
	flags.BoolVar(&f.config.Plain, "plain", false, "the original tester's stream: a zero byte in each period, no answer")
	flags.BoolVar(&f.asJSON, "json", false, "print the report as JSON at the end")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, cli.QuietUsage)
	f.stats.add(cmd)
	flags.IntVar(&f.expect.Servers, "expect-servers", 0, "exit code 1 unless so many servers hold connections at the end; 0: any number")
	spread := flags.String("expect-spread", "", "exit code 1 where a server's share at the end deviates more from an even one, such as 10%")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *closing != "fin" && *closing != "rst" {
			return cli.UsageError(fmt.Errorf("--close %q: write fin or rst", *closing))
		}
		f.config.Reset = *closing == "rst"
		return expectSpread(&f.expect, *spread)
	}
	return cmd
}

func runTCPClient(cmd *cobra.Command, f tcpClientFlags) (err error) {
	if f.config.Targets, err = targetAddresses(cmd.Context(), f.to); err != nil {
		return err
	}
	if f.config.Sources, err = sourceAddresses(f.sources); err != nil {
		return cli.UsageError(err)
	}
	if err := ownAddresses(f.config.Sources); err != nil {
		return err
	}
	if f.ports != "" {
		if n, err := fmt.Sscanf(f.ports, "%d-%d", &f.config.PortLow, &f.config.PortHigh); err != nil || n != 2 {
			return cli.UsageError(fmt.Errorf("--source-ports %q: write FIRST-LAST", f.ports))
		}
	}
	if err := f.expect.Validate(&f.config); err != nil {
		return cli.UsageError(err)
	}
	if f.config.ID = cmp.Or(f.config.ID, defaultTCPName()); len(f.config.ID) > 200 {
		return cli.UsageError(errors.New("--id: at most 200 bytes"))
	}
	progress := newTCPProgress(cmd.ErrOrStderr())
	feed, err := f.stats.open(progress.say)
	if err != nil {
		return err
	}
	defer feed.Close()
	show := progress.show
	if f.quiet {
		show = nil
	}
	load := procstat.LoadAverage()
	r, err := holdTCP(cmd, f, show, func(each []tcpscale.Report) { feed.Post(each...) })
	progress.end()
	if err != nil {
		return err
	}
	r.Command, r.LoadBefore, r.LoadAfter = measuring.TypedCommand(), load, procstat.LoadAverage()
	if f.asJSON {
		err = cli.PrintJSON(cmd.OutOrStdout(), r)
	} else {
		err = writeTCPReport(cmd.OutOrStdout(), &r)
	}
	if err != nil {
		return err
	}
	if err := tcpscale.Verdict(&r); errors.Is(err, tcpscale.ErrVoid) {
		return err
	} else if err != nil {
		return fmt.Errorf("%d of %d connections at the end, %d lost meanwhile", r.Connections.Established, r.Connections.Target, r.Totals.Lost)
	}
	return f.expect.Check(&r)
}

// expectSpread reads --expect-spread.
func expectSpread(e *tcpscale.Expect, text string) error {
	if text == "" {
		return nil
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil {
		return cli.UsageError(fmt.Errorf("--expect-spread %q: write a percentage such as 10%%", text))
	}
	percent /= 100
	e.Spread = &percent
	return nil
}

func sourceAddresses(texts []string) ([]netip.Addr, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	var prefixes []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			p, err = a.Prefix(a.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("--sources %q: write an address or a prefix such as 192.0.2.64/29", text)
		}
		prefixes = append(prefixes, p)
	}
	return tcpscale.Sources(prefixes)
}

// ownAddresses queries the kernel whether connections may come from them: otherwise each connect would fail as if ports had run out.
func ownAddresses(sources []netip.Addr) error {
	for _, a := range sources {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 0)))
		switch {
		case err == nil:
			conn.Close() // nothing was sent
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return fmt.Errorf("--sources %v: no address of this machine; first: ip address add %v/%d dev INTERFACE", a, a, a.BitLen())
		}
	}
	return nil
}

// holdTCP runs a client to its end.
func holdTCP(cmd *cobra.Command, f tcpClientFlags, show func(tcpscale.Report), each func([]tcpscale.Report)) (r tcpscale.Report, err error) {
	run := tcpscale.ClientRun{Config: f.config, Replicas: f.replicas, For: f.hold, Plateau: f.plateau, Tick: show, Each: each}
	if f.replicas < 1 || f.replicas > tcpscale.MaxReplicas {
		return r, cli.UsageError(fmt.Errorf("--replicas %d: 1 to %d", f.replicas, tcpscale.MaxReplicas))
	}
	run.Workers = int(f.workers)
	if err := f.config.Validate(); err != nil {
		return r, cli.UsageError(err)
	}
	if run.Workers > f.config.Connections {
		return r, cli.UsageError(fmt.Errorf("--workers %d: more than --connections %d", run.Workers, f.config.Connections))
	}
	if run.Launcher, err = measuring.TCPWorkers(cmd.ErrOrStderr()); err != nil {
		return r, err
	}
	return run.Run(cmd.Context())
}
