package turn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/kube/lookup"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// gatewayFlags are the flags of `weir turn gateway`.
type gatewayFlags struct {
	config       cli.ConfigFile
	peers        []string
	tcpPeers     []string
	workers      int
	check        bool
	id           string // of a config discovery service
	cluster      lookup.Config
	force        bool // ready while it drains
	unproven     int
	drainTimeout time.Duration
	serve        cli.ServeFlags
	handover     cli.HandoverFlags
}

func newTurnGatewayCommand() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway {FILE | TURN-URI}",
		Short: "Run a TURN gateway (RFC 8656): media of WebRTC clients through one port",
		Long: `Run a TURN gateway until interrupted: clients over UDP, TCP, TLS and DTLS reach, through one port, the peers that its routes
name, and no others.

The file has Weir's own format or STUNner's (stunnerd, API v1 or v1alpha1, YAML or JSON); Weir detects the format from the keys.
The file and the certificates that it names are watched: a change (also an atomic rename, also SIGHUP without a change) is
applied as a whole, or refused with one line that names file, line, key and remedy. Allocations continue unless the new
configuration forbids them; only a listener whose address, port or protocol changes is reopened.

The URL of a config discovery service instead of a file, -c http://HOST:PORT, is one of STUNner's operator or Weir's: the gateway follows
the configuration --id there and keeps the last one while the service is away. With -c k8s it finds the service at the API server of
Kubernetes. 'weir turn stunnerd' has stunnerd's own options.

A TURN URI instead of a file is a gateway with one listener, one user and routes to every peer, or to --peers. With
tls and dtls the gateway makes a self-signed certificate.

These peers are refused even if a route includes them: loopback, link-local, multicast and broadcast addresses, and this host's
own addresses. An endpoint that names such an address allows it: 127.0.0.1:5000.

A supervisor process holds all sockets: a crash, kill -9 or 'weir turn upgrade' ends no allocation. SIGTERM drains: no new
allocations, an end when the last one is gone or after --drain-timeout; a second signal ends at once.`,
		Example: `  weir turn gateway 'turn://user1:passwd1@192.0.2.1:3478?transport=udp'
  weir turn gateway turn://user1:passwd1@127.0.0.1:3478 --peers 127.0.0.1,10.0.0.0/8:10000-20000
  weir turn gateway turns://user1:passwd1@0.0.0.0:5349 --tcp-peers 10.0.0.0/8:443
  weir turn gateway -c gateway.yaml --metrics :9183
  weir turn gateway -c stunnerd.yaml --check
  weir turn gateway -c http://stunner-config-discovery.stunner-system:13478 --id media/udp-gateway
  kill -HUP PID     # of this gateway: read the file again`,
		RunE: func(cmd *cobra.Command, args []string) error { return runTurnGateway(cmd, &f, args) },
	}
	flags := cmd.Flags()
	f.config.Add(cmd, ", Weir's or STUNner's (YAML or JSON)")
	flags.StringVar(&f.id, "id", "", "of a config discovery service: NAMESPACE/NAME of the configuration (default $STUNNER_NAMESPACE/$STUNNER_NAME)")
	f.addCluster(flags)
	flags.StringSliceVar(&f.peers, "peers", nil, "of a TURN URI: peers that may be reached: addresses, prefixes, names, each with an optional port range (default 0.0.0.0/0,::/0)")
	flags.StringSliceVar(&f.tcpPeers, "tcp-peers", nil, "of a TURN URI: peers that may be reached over TCP (RFC 6062; default none)")
	flags.IntVar(&f.workers, "workers", 0, "workers that relay, each with its own socket per UDP listener (default one per core)")
	flags.IntVar(&f.unproven, "unauthenticated", 0, "answers per second to one address that has not returned a nonce yet; wins over limits.unauthenticated (or "+envUnauthenticated+"; default 100)")
	flags.BoolVar(&f.check, "check", false, "check configuration and certificates, print what they mean, open nothing")
	cli.OldFlag(cmd, "dry-run", "d", "check") // of stunnerd
	cli.DurationVar(flags, &f.drainTimeout, "drain-timeout", 0, "the longest wait for allocations to end after SIGTERM; wins over drain.timeout")
	f.serve.Add(cmd, cli.TurnPart())
	f.handover.Add(cmd, "allocations", "what a start after the end of every process takes up again")
	return cmd
}

// addCluster declares where the API server of -c k8s is.
func (f *gatewayFlags) addCluster(flags *pflag.FlagSet) {
	flags.StringVar(&f.cluster.Kubeconfig, "kubeconfig", "", "of -c k8s: file that names the API server and the credential (default $KUBECONFIG, ~/.kube/config, else the Pod's service account)")
	flags.StringVar(&f.cluster.Context, "context", "", "of -c k8s: context of the kubeconfig (default its current one)")
}

const maxGatewayWorkers = 256

// envUnauthenticated replaces --unauthenticated, because a STUNner file has no key for it.
const envUnauthenticated = "WEIR_TURN_UNAUTHENTICATED"

// limit returns --unauthenticated, else the value in the environment; 0 if neither is set.
func (f *gatewayFlags) limit() (int, error) {
	name, limit := "--unauthenticated", f.unproven
	if text := os.Getenv(envUnauthenticated); limit == 0 && text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("%s=%q: write answers per second, such as 1000", envUnauthenticated, text)
		}
		name, limit = envUnauthenticated, n
	}
	if limit < 0 || limit > 1<<30 {
		return 0, fmt.Errorf("%s %d is not between 0 (default) and %d", name, limit, 1<<30)
	}
	return limit, nil
}

func runTurnGateway(cmd *cobra.Command, f *gatewayFlags, args []string) error {
	source, err := f.source(args)
	if err != nil {
		return cli.UsageError(err)
	}
	return runGateway(cmd, f, source)
}

// runGateway runs or checks a gateway with a configuration from wherever.
func runGateway(cmd *cobra.Command, f *gatewayFlags, source *gatewaySource) error {
	if f.workers < 0 || f.workers > maxGatewayWorkers {
		return cli.UsageError(fmt.Errorf("--workers %d is not between 0 (one per core) and %d", f.workers, maxGatewayWorkers))
	}
	log, levels, err := newScopedLogger(cmd.ErrOrStderr(), f.serve.Log)
	if err != nil {
		return cli.UsageError(err)
	}
	if f.check {
		plan, _, err := source.load()
		if err == nil {
			err = plan.Check()
		}
		if err != nil {
			return cli.UsageError(err)
		}
		summary := plan.Summary()
		for _, note := range plan.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
		}
		return files.PrintGateway(cmd.OutOrStdout(), &summary)
	}
	return f.handover.Run(cmd, log, func(ctx context.Context, k *handover.Store) error {
		return serveGateway(ctx, k, source, log, levels, cmd.Flags().Changed("drain-timeout"))
	})
}

// serveGateway runs in the serving process.
func serveGateway(ctx context.Context, k *handover.Store, source *gatewaySource, log *slog.Logger, levels *atomic.Pointer[stunnerd.LogLevels], drainGiven bool) error {
	signals, release := turnSignals()
	defer release()
	source.keep(k)
	plan, text, err := source.loadChecked(log)
	if err != nil {
		return cli.UsageError(err)
	}
	options := gateway.Options{Workers: source.flags.workers, Log: log.With("scope", "turn"), Store: gatewayStore(k)}
	offload, err := openTurnOffload(&plan.Gateway, log.With("scope", "offload"))
	if err != nil {
		return err
	}
	defer offload.close(log)
	offload.into(&options)
	g, err := gateway.Open(plan.Gateway, options)
	if err != nil {
		return err
	}
	// Busy workers occupy their processors, so the rest of the program gets additional ones, as for the workers of weir lb run.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), g.Stats().Workers+2))
	if dropped := k.DropUntaken(); dropped > 0 {
		log.Info("kept sockets without an allocation are closed, such as those of clients over TCP, TLS and DTLS", "sockets", dropped)
	}
	loop := &gatewayLoop{source: source, gateway: g, log: log.With("scope", "reconciler"), levels: levels, draining: make(chan struct{})}
	api := loop.admin(k, offload, plan.STUNner)
	token, err := cli.AdminToken(source.flags.serve.TokenFile)
	if err != nil {
		return errors.Join(cli.UsageError(err), g.Close())
	}
	loop.endpoints = &stunnerEndpoints{log: log, token: token, hosts: source.flags.serve.Hosts, probes: api, samples: api.Metrics}
	defer loop.endpoints.close()
	loop.started(plan)
	if _, err := loop.endpoints.change(plan); err != nil {
		return errors.Join(plan.Document.Locate(err), g.Close())
	}
	for _, uri := range loop.now().URIs {
		log.Info("TURN", "uri", uri)
	}
	var timeout *time.Duration // nil: the configuration's
	if drainGiven {
		timeout = &source.flags.drainTimeout
	}
	return cli.Serve(ctx, source.flags.serve, log, api, source.reload(log), g.Run,
		func(ctx context.Context) error { return loop.run(ctx, text) },
		func(ctx context.Context) error {
			return superviseGateway(ctx, signals, g, k, timeout, loop.drains, log)
		})
}

// loadChecked is load for a gateway that is going to serve.
func (s *gatewaySource) loadChecked(log *slog.Logger) (*files.GatewayPlan, []byte, error) {
	plan, text, err := s.load()
	if err != nil {
		return nil, nil, err
	}
	if err := plan.Check(); err != nil {
		return nil, nil, err
	}
	for i := range plan.Gateway.Listeners {
		privilege.WarnKeyFile(log, "TLS key", plan.Gateway.Listeners[i].Key)
	}
	return plan, text, nil
}

// admin is the admin API of the gateway, with the state of its configuration, its handover and its offload.
func (l *gatewayLoop) admin(k *handover.Store, offload *turnOffload, stunner bool) admin.Config {
	api := turnAdmin(l.gateway, func() int64 { return time.Now().UnixNano() }, stunner)
	addHandover(&api, k, l.gateway, l.now)
	offload.measured(&api)
	others := api.Metrics
	api.Metrics = func() []metrics.Sample { return append(others(), l.samples()...) }
	if l.source.flags.force {
		api.Ready = func() error {
			if err := l.gateway.Ready(); !errors.Is(err, gateway.ErrDraining) {
				return err
			}
			return nil
		}
	}
	return api
}

// superviseGateway answers the supervisor until a signal ends the gateway, and then drains it. A timeout of nil is the configuration's.
func superviseGateway(ctx context.Context, signals <-chan os.Signal, g *gateway.Gateway, k *handover.Store, timeout *time.Duration, begun func(), log *slog.Logger) error {
	drain := func() gateway.DrainConfig {
		settings := g.DrainConfig()
		if timeout != nil {
			settings.Timeout = *timeout
		}
		return settings
	}
	go k.Watch(ctx, g.Respond)
	k.Ready()
	end := cli.SignalsOf(ctx).Ending
	end.Drain()
	if drainGateway(ctx, signals, g, drain, func() { begun(); k.Stopping() }, log); ctx.Err() == nil {
		handover.Leaving() // from here on, a process that does not end is killed and not restarted
		end.Drained()
	}
	return nil
}

// reload is the action on SIGHUP.
func (s *gatewaySource) reload(log *slog.Logger) func() <-chan struct{} {
	if s.file == nil { // also of a service, which sends what changes
		return func() <-chan struct{} {
			log.Info("there is no configuration file to read again")
			return nil
		}
	}
	return s.file.Reload
}
