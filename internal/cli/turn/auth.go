package turn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/internal/turn/authservice"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// Environment variables of `weir turn auth`, as of STUNner's service.
const (
	envServiceAddress = "CDS_SERVER_ADDR"
	envPublicAddress  = "STUNNER_PUBLIC_ADDR"
)

const (
	maxAuthConnections = 256
	maxKeyFile         = 4096
)

// turnAuthFlags are the flags of `weir turn auth`.
type turnAuthFlags struct {
	service, listen, public, keyFile string
	serve                            cli.ServeFlags
}

func newTurnAuthCommand() *cobra.Command {
	f := &turnAuthFlags{}
	cmd := &cobra.Command{
		Use:   "auth",
		Short: "Give out credentials for TURN gateways over HTTP, those of their live configurations",
		Long: `Answer requests for credentials of TURN gateways until interrupted, as STUNner's authentication service does: GET / is the REST API for
access to TURN services, GET /ice an ICE configuration for RTCPeerConnection. The gateways' configurations come from the config
discovery service of an operator and are followed: credentials are always those that the gateways accept.

Everyone who reaches the address gets credentials, unless --key-file requires a key in each request. So --listen is this machine alone by
default; let only application servers reach it. No credential, secret or user name is logged, counted or shown in the status.`,
		Example: `  weir turn auth --discovery http://stunner-config-discovery.stunner-system:13478 --listen :8088
  weir turn auth --discovery 127.0.0.1:13478 --public-address turn.example.org --key-file key.txt
  curl -s 'http://127.0.0.1:8088/ice?service=turn&username=alice&ttl=3600&namespace=media'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTurnAuth(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.service, "discovery", "", "config discovery service, HOST:PORT, http://HOST:PORT, https://HOST:PORT (default $"+envServiceAddress+", $"+envOrigin+", else :13478)")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8088", "HOST:PORT to answer requests at; :8088 for every address")
	flags.StringVar(&f.public, "public-address", "", "address of all gateways, a name too,, in place of their own (default $"+envPublicAddress+")")
	flags.StringVar(&f.keyFile, "key-file", "", "file with the key that requests must have as key=; none: every request is answered")
	f.serve.Add(cmd, cli.TurnAuthPart())
	return cmd
}

func runTurnAuth(cmd *cobra.Command, f *turnAuthFlags) error {
	log, err := cli.NewLogger(cmd.ErrOrStderr(), f.serve.Log)
	if err != nil {
		return cli.UsageError(err)
	}
	service, watcher, err := f.open(log)
	if err != nil {
		return cli.UsageError(err)
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return cli.UsageError(fmt.Errorf("--listen: %w", err))
	}
	if f.keyFile == "" && !isLoopback(listener.Addr()) {
		log.Warn("everyone who reaches this address gets credentials; require a key with --key-file, or let only application servers reach it", "address", listener.Addr().String())
	}
	log.Info("credentials", "address", listener.Addr().String())
	return cli.Serve(cmd.Context(), f.serve, log, turnAuthAdmin(service, watcher), nil,
		func(ctx context.Context) error { return serveHTTP(ctx, listener, service.Handler(), log) },
		func(ctx context.Context) error {
			return watcher.Run(ctx, func(config []byte) { takeCredentials(service, config, log) })
		})
}

func isLoopback(address net.Addr) bool {
	tcp, ok := address.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// open makes what the flags request; it opens nothing.
func (f *turnAuthFlags) open(log *slog.Logger) (*authservice.Service, *discovery.Watcher, error) {
	origin, err := discovery.ParseOrigin(cmp.Or(f.service, os.Getenv(envServiceAddress), os.Getenv(envOrigin), fmt.Sprintf(":%d", discovery.DefaultPort)))
	if err != nil {
		return nil, nil, fmt.Errorf("--discovery: %w", err)
	}
	options := authservice.Options{PublicHost: cmp.Or(f.public, os.Getenv(envPublicAddress))}
	if f.keyFile != "" {
		text, err := readfile.Once(f.keyFile, maxKeyFile)
		if err != nil {
			return nil, nil, fmt.Errorf("--key-file: %w", err)
		}
		privilege.WarnKeyFile(log, "key", f.keyFile)
		if options.Key = strings.TrimSpace(string(text)); options.Key == "" {
			return nil, nil, fmt.Errorf("--key-file %s: it is empty; write a key in it", f.keyFile)
		}
	}
	service, err := authservice.New(options)
	if err != nil {
		return nil, nil, fmt.Errorf("--public-address: %w", err)
	}
	watcher := &discovery.Watcher{Origin: origin, Log: log}
	watcher.Opened = func(ctx context.Context) error {
		all, err := discovery.List(ctx, origin, "")
		if err == nil {
			service.Replace(all)
		}
		return err
	}
	return service, watcher, nil
}

// takeCredentials follows a configuration that has changed, or was deleted.
func takeCredentials(service *authservice.Service, config []byte, log *slog.Logger) {
	name := stunnerd.NameOf(config)
	if stunnerd.IsDeleted(config) {
		service.Remove(name)
		log.Info("a gateway is gone", "name", name)
		return
	}
	if err := service.Set(config); err != nil {
		log.Warn("no credentials for a gateway: its configuration cannot be used", "name", name, "error", err)
		return
	}
	log.Info("credentials of a gateway", "name", name)
}

// serveHTTP answers requests until ctx ends.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(netutil.LimitListener(listener, maxAuthConnections)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answer requests at %v: %w", listener.Addr(), err)
	}
	return nil
}

func turnAuthAdmin(service *authservice.Service, watcher *discovery.Watcher) admin.Config {
	return admin.Config{
		Ready: func() error {
			if service.Stats().Configs == 0 {
				return errors.New("no configuration of a gateway is known")
			}
			return nil
		},
		Plots:   authPlots(),
		Metrics: func() []metrics.Sample { return append(metrics.Of(service.Stats()), metrics.Of(watcher.Status())...) },
		Status: func() any {
			s := service.Stats()
			return v1.TurnAuthStatus{
				PID: os.Getpid(), Version: cli.ReadBuildInfo().Version, Discovery: watcher.Status(), Configs: s.Configs,
				Issued: s.Issued, Refused: s.Refused, Wrong: s.Wrong, Unmatched: s.Unmatched, Ignored: s.Ignored,
			}
		},
	}
}
