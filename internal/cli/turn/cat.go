package turn

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/turn/turncat"
)

// maxCA limits the size of a file of certificate authorities.
const maxCA = 4 << 20

// Environment variables of `weir turn cat`, for secrets that must not appear in the list of processes.
const (
	envTurnUser     = "WEIR_TURN_USER"
	envTurnPassword = "WEIR_TURN_PASSWORD"
	envTurnSecret   = "WEIR_TURN_SECRET"
)

// turnCatFlags are the flags of `weir turn cat`.
type turnCatFlags struct {
	config                 turncat.Config
	user, password, secret string
	credentials            string
	ttl                    time.Duration
	ca                     string
	cluster                clusterFlags // of a gateway in Kubernetes
	log                    string
	verbose, quiet, json   bool
}

func newTurnCatCommand() *cobra.Command {
	f := &turnCatFlags{}
	cmd := &cobra.Command{
		Use:   "cat LISTEN TURN-URI PEER",
		Short: "Tunnel local traffic through a TURN server to a peer",
		Long: `Tunnel local traffic through a TURN server to a peer, as STUNner's turncat does.

Every local client gets an allocation of its own at the server; what it sends goes to PEER, what PEER answers comes back.

LISTEN    udp://IP:PORT, tcp://IP:PORT, unix://PATH, or - (also file://stdin) for standard input and output
TURN-URI  turn://USER:PASSWORD@HOST:PORT?transport=udp|tcp|tls|dtls, or as RFC 7065 writes it turn:HOST:PORT?transport=udp|tcp and
          turns:HOST:PORT?transport=tcp|udp (TLS, DTLS). Ports 3478, for turns 5349.
          Or k8s://NAMESPACE/GATEWAY:LISTENER, whose address and credentials are looked up in the cluster.
PEER      udp://HOST:PORT, IPv4 or IPv6, or tcp://HOST:PORT (RFC 6062; needs a stream in front and a server over TCP or TLS)

TCP, Unix sockets and standard input are byte streams: towards a UDP peer each read is one datagram of at most --mtu bytes, so on a
terminal a line is a datagram, and what is written fast or in larger pieces is cut where the reads happen to end. Each datagram of
the peer is one write. Towards a TCP peer bytes stay bytes.

Credentials come from the first of: --credentials, --secret (or ` + envTurnSecret + `), --user and --password (or
` + envTurnUser + ` and ` + envTurnPassword + `), the TURN-URI. The server is tried first: a wrong password ends the command with exit code 1. When
the server goes away later, sessions are made again with growing pauses; what clients send meanwhile is dropped and counted.
Ctrl-C or SIGTERM gives every allocation back.`,
		Example: `  weir turn cat udp://127.0.0.1:9000 k8s://media/udp-gateway:udp-listener udp://10.0.0.5:5000
  weir turn cat udp://127.0.0.1:9000 'turn://user1:passwd1@192.0.2.1:3478?transport=udp' udp://10.0.0.5:5000
  weir turn cat - turn:192.0.2.1 udp://10.0.0.5:5000 --user user1 --password passwd1
  weir turn cat udp://:9000 turns:turn.example.org udp://media.internal:5000 --credentials ice.json
  weir turn cat udp://:9000 turn://192.0.2.1:3478 udp://10.0.0.5:5000 --secret my-shared-secret --auth-ttl 1h
  weir turn cat tcp://127.0.0.1:2222 'turn://user1:passwd1@192.0.2.1:3478?transport=tcp' tcp://10.0.0.5:22`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 3 {
				return cli.UsageError(fmt.Errorf("%d arguments; give LISTEN TURN-URI PEER, such as udp://127.0.0.1:9000 turn://user:password@192.0.2.1:3478 udp://10.0.0.5:5000", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runTurnCat(cmd, f, args) },
	}
	flags, c := cmd.Flags(), &f.config
	f.addCredentials(flags)
	flags.StringVar(&c.ServerName, "sni", "", "name that the server's certificate must bear (default the host of TURN-URI)")
	flags.BoolVarP(&c.Insecure, "insecure", "i", false, "take any certificate")
	cli.OldShorthand(cmd, "i", "insecure") // STUNner's turncat has this shorthand; it means --interface in other commands
	flags.StringVar(&f.ca, "ca", "", "PEM file of the authorities to trust instead of the system's")
	f.cluster.add(flags, "k8s://")
	f.addTunnel(flags)
	flags.StringVarP(&f.log, "log", "l", "text", "text or json, or a level as STUNner writes it, such as all:DEBUG")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log every session")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, cli.QuietUsage)
	flags.BoolVar(&f.json, "json", false, "print the statistics as JSON at the end")
	return cmd
}

// addCredentials declares what the server authenticates.
func (f *turnCatFlags) addCredentials(flags *pflag.FlagSet) {
	flags.StringVar(&f.user, "user", "", "user name; with --secret the name behind the time")
	flags.StringVar(&f.password, "password", "", "password")
	flags.StringVar(&f.credentials, "credentials", "", "file with {\"username\", \"password\"}, {\"iceServers\": [...]}, or a user and a password in two lines; read again for each session")
	flags.StringVar(&f.secret, "secret", "", "shared secret: make time-windowed credentials, and new ones before they end")
	cli.DurationVar(flags, &f.ttl, "auth-ttl", time.Hour, "with --secret: how long credentials are good")
}

// addTunnel declares how sessions and datagrams are treated.
func (f *turnCatFlags) addTunnel(flags *pflag.FlagSet) {
	c := &f.config
	flags.IntVar(&c.MaxClients, "max-clients", turncat.DefaultMaxClients, "clients at a time; datagrams of further ones are dropped, connections closed")
	cli.DurationVar(flags, &c.IdleTimeout, "idle-timeout", turncat.DefaultIdleTimeout, "forget a client after this silence both ways, from 1s")
	cli.DurationVar(flags, &c.CheckEvery, "check-every", turncat.DefaultCheckEvery, "how often a session in use checks whether its allocation is still there; -1s never")
	cli.DurationVar(flags, &c.Lifetime, "lifetime", turncat.DefaultLifetime, "lifetime of allocations to request, 1m to 1h")
	cli.DurationVar(flags, &c.Linger, "linger", turncat.DefaultLinger, "after the end of a stream's input wait for answers until so much silence")
	flags.IntVar(&c.MTU, "mtu", turncat.DefaultMTU, "maximum bytes of a datagram that is cut from a stream")
	flags.IntVar(&c.Workers, "workers", 0, "workers of a UDP listener (default 1, which is enough for some 200,000 packets a second)")
	cli.DurationVar(flags, &c.Gather, "gather", 0, "let datagrams gather for so long, at most 1ms: less CPU, more latency")
	flags.IntVar(&c.Buffer, "buffer", turncat.DefaultBuffer, "kernel buffers of UDP sockets in bytes; above net.core.rmem_max needs root")
	flags.BoolVar(&c.NoCheck, "no-check", false, "do not try the server first: begin also while it is away")
}

func runTurnCat(cmd *cobra.Command, f *turnCatFlags, args []string) error {
	if err := f.parse(args); err != nil {
		return cli.UsageError(err)
	}
	if turncat.IsGateway(args[1]) {
		if err := f.lookUp(cmd.Context(), args[1]); err != nil {
			return err
		}
	}
	screen := &catScreen{Live: terminal.NewLive(cmd.ErrOrStderr()), quiet: f.quiet}
	log, err := f.logger(screen)
	if err != nil {
		return cli.UsageError(err)
	}
	f.config.Log = log
	if err := f.config.Validate(); err != nil {
		return cli.UsageError(err)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	tunnel, err := turncat.Open(ctx, f.config)
	if err != nil {
		return err
	}
	log.Info("tunnel", "listen", tunnel.Addr(), "server", f.config.Server.String(), "peer", tunnel.Peer())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		screen.live(ctx, tunnel)
	}()
	begun := time.Now()
	err = tunnel.Run(ctx)
	cancel()
	<-ended
	stats := tunnel.Stats()
	if err != nil {
		return err
	}
	return f.summary(cmd, tunnel, stats, time.Since(begun))
}

// parse converts the arguments, the flags and the environment to the configuration.
func (f *turnCatFlags) parse(args []string) (err error) {
	c := &f.config
	if c.Listen, err = turncat.ParseListen(args[0]); err != nil {
		return err
	}
	if turncat.IsGateway(args[1]) { // its address is looked up later
		if _, err := turncat.ParseGateway(args[1]); err != nil {
			return err
		}
	} else if c.Server, err = turncat.ParseServer(args[1]); err != nil {
		return err
	} else if f.cluster != (clusterFlags{}) {
		return errors.New("--discovery, --kubeconfig and --context belong to a gateway in Kubernetes: k8s://NAMESPACE/GATEWAY:LISTENER")
	}
	if c.Peer, err = turncat.ParsePeer(args[2]); err != nil {
		return err
	}
	if f.ca != "" {
		pem, err := readfile.Once(f.ca, maxCA)
		if err != nil {
			return fmt.Errorf("--ca: %w", err)
		}
		c.Roots = x509.NewCertPool()
		if !c.Roots.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--ca %s: no certificate in PEM form in it", f.ca)
		}
	}
	return f.source()
}

// source selects the source of credentials.
func (f *turnCatFlags) source() error {
	c := &f.config
	secret := cmp.Or(f.secret, os.Getenv(envTurnSecret))
	user := cmp.Or(f.user, os.Getenv(envTurnUser))
	password := cmp.Or(f.password, os.Getenv(envTurnPassword))
	switch {
	case f.credentials != "" && (f.user != "" || f.password != "" || f.secret != ""):
		return errors.New("--credentials excludes --user, --password and --secret")
	case f.secret != "" && f.password != "":
		return errors.New("--secret makes the password: leave --password out")
	case f.credentials != "":
		c.Credentials = turncat.File(f.credentials)
		_, err := c.Credentials(time.Now())
		return err
	case secret != "" && f.password == "":
		if f.ttl < 10*time.Second {
			return fmt.Errorf("--auth-ttl %v: write at least 10s", f.ttl)
		}
		c.Credentials = turncat.Ephemeral(secret, cmp.Or(user, c.Server.User), f.ttl)
	case user != "" && password != "":
		c.Credentials = turncat.Static(user, password)
	case f.user != "" || f.password != "":
		return errors.New("--user and --password belong together")
	case c.Server.User != "":
		c.Credentials = turncat.Static(c.Server.User, c.Server.Password)
	}
	return nil
}

// logger reads --log: a format, or STUNner's levels, of which the most verbose counts.
func (f *turnCatFlags) logger(w io.Writer) (*slog.Logger, error) {
	level := slog.LevelInfo
	if f.quiet {
		level = slog.LevelWarn
	}
	if strings.Contains(f.log, ":") {
		level = slog.LevelError
		for part := range strings.SplitSeq(f.log, ",") {
			_, name, _ := strings.Cut(part, ":")
			one, ok := map[string]slog.Level{
				"TRACE": slog.LevelDebug, "DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "ERROR": slog.LevelError, "DISABLED": slog.LevelError,
			}[strings.ToUpper(name)]
			if !ok {
				return nil, fmt.Errorf("--log: no level in %q; write text, json or SCOPE:LEVEL with TRACE, DEBUG, INFO, WARN or ERROR", part)
			}
			level = min(level, one)
		}
	}
	if f.verbose {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	switch {
	case f.log == "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case f.log == "text", f.log == "", strings.Contains(f.log, ":"):
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log: no format %q; write text, json or a level such as all:DEBUG", f.log)
}

func catText(listen string, f *turnCatFlags, s turncat.Stats, d time.Duration) v1.TurnCat {
	return v1.TurnCat{
		Listen: listen, Server: f.config.Server.String(), Peer: f.config.Peer.String(), Seconds: d.Seconds(),
		Clients: s.Clients, ClientsEver: s.ClientsEver, PeakClients: s.PeakClients, Sessions: s.Sessions,
		Allocations: s.Allocations, AllocationsLost: s.AllocationsLost, AllocationsMoved: s.AllocationsMoved, Failures: s.Failures,
		UpPackets: s.UpPackets, UpBytes: s.UpBytes, DownPackets: s.DownPackets, DownBytes: s.DownBytes,
		DroppedGap: s.DroppedGap, DroppedFull: s.DroppedFull, DroppedQueue: s.DroppedQueue, DroppedLong: s.DroppedLong,
		SendErrors: s.SendErrors, Strays: s.Strays, Overflowed: s.Overflowed, Idle: s.Idle,
	}
}

func (f *turnCatFlags) summary(cmd *cobra.Command, tunnel *turncat.Tunnel, s turncat.Stats, d time.Duration) error {
	out := cmd.OutOrStdout()
	if f.config.Listen.Kind == turncat.KindStdio {
		out = cmd.ErrOrStderr() // standard output carries the peer's data
	}
	if f.json {
		return cli.PrintJSON(out, catText(tunnel.Addr(), f, s, d))
	}
	if f.quiet {
		return nil
	}
	rows := []struct {
		name  string
		value uint64
	}{
		{"clients", s.ClientsEver},
		{"allocations", s.Allocations},
		{"allocations lost", s.AllocationsLost},
		{"allocations replaced", s.AllocationsMoved},
		{"failed attempts", s.Failures},
		{"packets to the peer", s.UpPackets},
		{"bytes to the peer", s.UpBytes},
		{"packets from the peer", s.DownPackets},
		{"bytes from the peer", s.DownBytes},
		{"dropped without session", s.DroppedGap},
		{"dropped, too many clients", s.DroppedFull},
		{"dropped, queue full", s.DroppedQueue},
		{"dropped, too long", s.DroppedLong},
		{"refused by the kernel", s.SendErrors},
		{"not ours from the server", s.Strays},
		{"receive buffer full", s.Overflowed},
		{"idle clients forgotten", s.Idle},
	}
	for _, r := range rows {
		if r.value > 0 {
			fmt.Fprintf(out, "%-26s %d\n", r.name, r.value)
		}
	}
	return nil
}

// catScreen shows rates while the command runs: on a terminal in a line that is redrawn, else every ten seconds.
type catScreen struct {
	*terminal.Live // standard error; the log is written through it, too
	quiet          bool
}

func (s *catScreen) live(ctx context.Context, tunnel *turncat.Tunnel) {
	if s.quiet {
		return
	}
	every := cli.LogEvery
	if s.IsTerminal() {
		every = time.Second
		defer s.Clear()
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	before, at := tunnel.Stats(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := tunnel.Stats()
		line := catRates(&before, &now, time.Since(at))
		switch {
		case s.IsTerminal():
			s.Show(line)
		case now != before:
			fmt.Fprintln(s, line)
		}
		before, at = now, time.Now()
	}
}

func catRates(a, b *turncat.Stats, period time.Duration) string {
	per := func(a, b uint64) float64 { return float64(b-a) / max(period.Seconds(), 0.001) }
	line := fmt.Sprintf("%d clients, %d sessions, to the peer %.0f packets/s %.2f Mbit/s, from it %.0f packets/s %.2f Mbit/s", b.Clients, b.Sessions,
		per(a.UpPackets, b.UpPackets), per(a.UpBytes, b.UpBytes)*8e-6, per(a.DownPackets, b.DownPackets), per(a.DownBytes, b.DownBytes)*8e-6)
	if n := per(a.DroppedGap+a.DroppedFull+a.DroppedQueue+a.DroppedLong+a.SendErrors, b.DroppedGap+b.DroppedFull+b.DroppedQueue+b.DroppedLong+b.SendErrors); n > 0 {
		line += fmt.Sprintf(", dropped %.0f/s", n)
	}
	return line
}
