package coap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/privilege"
)

// coapServerFlags are the flags of `weir coap server`.
type coapServerFlags struct {
	config      cli.ConfigFile
	cluster     []string
	noBackward  bool
	noBenchmark bool
	plugtest    bool
	dtlsOnly    bool
	demo        bool
	nodeID      uint32
	trusted     []string
	serve       cli.ServeFlags
	check       bool
	server      node.Config
}

func newCoapServerCommand() *cobra.Command {
	var f coapServerFlags
	cmd := &cobra.Command{
		Use:   "server [FILE]",
		Short: "Serve CoAP over UDP and DTLS, alone or as nodes of a connection-id cluster",
		Long: `Serve CoAP over UDP and over DTLS 1.2 with connection ids (RFC 9146).

Resources: /context, /mycontext, /myip, /benchmark, /separate, /.well-known/core. Without --psk-file the public identities of
Californium's sandbox are accepted: cali.* with .fornium, Client_identity with secretPSK, password with sesame. They are
no secret: use --psk-file for anything but tests.

--dtls-cluster lists the nodes of a cluster as DTLS-ADDRESS;MANAGEMENT-ADDRESS;ID, separated by commas. A node of another process
has --- in place of its DTLS address. In a cluster the plain listener and the DTLS listener outside of it open only when
--listen or --dtls is given.`,
		Example: `  weir coap server
  weir coap server --listen 127.0.0.1:5783 --dtls 127.0.0.1:5784 --psk-file devices.psk
  weir coap server --dtls-cluster ":15784;localhost:15884;1,---;localhost:25884;2" --metrics :9182
  weir coap server --listen :5683 --dtls :5684 --plugtest
  weir coap server -c node.yaml --log json
  weir coap server -c node.yaml --check`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCoapServer(cmd, &f) },
	}
	flags := cmd.Flags()
	f.config.Add(cmd, " (YAML); flags given as well win over it")
	cmd.Args = f.config.Args
	flags.StringSliceVar(&f.server.Listen, "listen", nil, "addresses of plain CoAP (default :5783 outside of a cluster)")
	flags.StringSliceVar(&f.server.DTLS, "dtls", nil, "addresses of CoAP over DTLS (default :5784 outside of a cluster)")
	flags.StringSliceVar(&f.server.TCP, "listen-tcp", nil, "addresses of CoAP over TCP (default none)")
	flags.StringSliceVar(&f.server.TLS, "listen-tls", nil, "addresses of CoAP over TLS (default none)")
	flags.StringArrayVar(&f.cluster, "dtls-cluster", nil, "nodes of the cluster, DTLS;MANAGEMENT;ID,...; may be repeated")
	flags.BoolVar(&f.noBackward, "no-dtls-cluster-backward", false, "answer forwarded records directly instead of through the node they came by")
	flags.BoolVar(&f.dtlsOnly, "dtls-only", false, "no plain listener")
	flags.Uint32Var(&f.nodeID, "node-id", 0, "node id of the DTLS listeners outside of a cluster, 0 to 255")
	flags.IntVar(&f.server.CIDLength, "cid-length", 0, "bytes of a connection id, 2 to 16 (default 6)")
	flags.IntVar(&f.server.Workers, "workers", 0, "workers per listener (default one per core)")
	flags.IntVar(&f.server.MaxSessions, "max-sessions", 0, "sessions per worker (default 65536)")
	flags.StringSliceVar(&f.trusted, "trusted", nil, "prefixes whose plain CoAP requests are answered in full without proof of their address, such as 10.0.0.0/8")
	cli.DurationVar(flags, &f.server.SessionIdle, "session-idle", 0, "close DTLS sessions that have been silent for so long (default never)")
	flags.StringVar(&f.server.PSKFile, "psk-file", "", "file of IDENTITY=BASE64 lines; read again on SIGHUP and, up to 1 MiB, when it changes")
	flags.BoolVar(&f.demo, "demo-credentials", false, "accept the sandbox identities beside --psk-file")
	flags.BoolVar(&f.noBenchmark, "no-benchmark", false, "do not serve /benchmark")
	flags.BoolVar(&f.plugtest, "plugtest", false, "serve the resources of Californium's plugtest server as well, in blocks of 64 bytes; everybody may change what they hold")
	flags.IntVar(&f.server.BlockSize, "block-size", 0, "longest payload of a message in bytes, a power of two of 16 to 1024 (default 1024, with --plugtest 64)")
	f.serve.Add(cmd, cli.CoapPart())
	flags.BoolVar(&f.check, "check", false, "check configuration and credentials, open nothing")
	return cmd
}

// coapServerConfig merges file, flags and defaults.
func coapServerConfig(cmd *cobra.Command, f *coapServerFlags) (node.Config, error) {
	var cfg node.Config
	var document *config.Document
	if f.config.Path != "" {
		text, err := config.Once(f.config.Path)
		if err != nil {
			return cfg, fmt.Errorf("configuration: %w", err)
		}
		if cfg, document, err = config.Decode[node.Config](f.config.Path, text); err != nil {
			return cfg, err
		}
	}
	given := cmd.Flags().Changed
	for _, flag := range []struct {
		name string
		set  func()
	}{
		{"listen", func() { cfg.Listen = f.server.Listen }},
		{"dtls", func() { cfg.DTLS = f.server.DTLS }},
		{"listen-tcp", func() { cfg.TCP = f.server.TCP }},
		{"listen-tls", func() { cfg.TLS = f.server.TLS }},
		{"node-id", func() { cfg.NodeID = &f.nodeID }},
		{"cid-length", func() { cfg.CIDLength = f.server.CIDLength }},
		{"workers", func() { cfg.Workers = f.server.Workers }},
		{"max-sessions", func() { cfg.MaxSessions = f.server.MaxSessions }},
		{"session-idle", func() { cfg.SessionIdle = f.server.SessionIdle }},
		{"psk-file", func() { cfg.PSKFile = f.server.PSKFile }},
		{"demo-credentials", func() { cfg.DemoCredentials = &f.demo }},
		{"plugtest", func() { cfg.Plugtest = f.plugtest }},
		{"block-size", func() { cfg.BlockSize = f.server.BlockSize }},
		{"no-benchmark", func() { on := !f.noBenchmark; cfg.Benchmark = &on }},
	} {
		if given(flag.name) {
			flag.set()
		}
	}
	if given("trusted") {
		cfg.Trusted = nil
		for _, text := range f.trusted {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return cfg, fmt.Errorf("--trusted: %q is no prefix; write it as 10.0.0.0/8 or fd00::/8", text)
			}
			cfg.Trusted = append(cfg.Trusted, prefix)
		}
	}
	if len(f.cluster) > 0 {
		nodes, err := cluster.ParseNodes(strings.Join(f.cluster, ","))
		if err != nil {
			return cfg, fmt.Errorf("--dtls-cluster: %w", err)
		}
		if cfg.Cluster == nil {
			cfg.Cluster = new(cluster.Config)
		}
		cfg.Cluster.Nodes = nodes
	}
	if given("no-dtls-cluster-backward") {
		if cfg.Cluster == nil {
			return cfg, errors.New("--no-dtls-cluster-backward: there is no cluster; add --dtls-cluster")
		}
		backward := !f.noBackward
		cfg.Cluster.Backward = &backward
	}
	if f.dtlsOnly {
		if given("listen") {
			return cfg, errors.New("--dtls-only and --listen exclude each other; remove one")
		}
		cfg.Listen = nil
	}
	if f.config.Path == "" && cfg.Cluster == nil {
		if !given("listen") && !f.dtlsOnly {
			cfg.Listen = []string{":5783"}
		}
		if !given("dtls") {
			cfg.DTLS = []string{":5784"}
		}
	}
	if err := cfg.Validate(); err != nil {
		path, message, _ := strings.Cut(err.Error(), ": ")
		if document != nil {
			return cfg, document.Errorf(path, "%s", message)
		}
		return cfg, err
	}
	return cfg, nil
}

func runCoapServer(cmd *cobra.Command, f *coapServerFlags) error {
	log, err := cli.NewLogger(cmd.ErrOrStderr(), f.serve.Log)
	if err != nil {
		return cli.UsageError(err)
	}
	cfg, err := coapServerConfig(cmd, f)
	if err != nil {
		return cli.UsageError(err)
	}
	cfg.Log, cfg.Version = log, cli.ReadBuildInfo().Version
	if f.check {
		if _, err := node.LoadCredentials(cfg.PSKFile, true); err != nil {
			return cli.UsageError(err)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "configuration is fine")
		return err
	}
	privilege.WarnKeyFile(log, "PSK file", cfg.PSKFile)
	server, err := node.Open(cfg)
	if err != nil {
		return err
	}
	if address := cfg.PublicDemo(); address != "" {
		log.Warn("everybody knows the demo credentials, and other machines reach this address", "address", address, "remedy", "--psk-file, or --dtls 127.0.0.1:5784 for tests")
	}
	server.LogStart(log)
	parts := []cli.Loop{server.Run}
	reload := func() {
		if err := server.ReloadCredentials(); err != nil {
			log.Error("PSK file not taken over, the keys before it stay", "error", err)
			return
		}
		log.Info("PSK file taken over", "generation", server.Status().Credentials.Generation)
	}
	if cfg.PSKFile != "" {
		file := config.NewFile(cfg.PSKFile)
		seen, err := file.Read()
		if err != nil {
			return errors.Join(err, server.Close())
		}
		parts = append(parts, func(ctx context.Context) error {
			return file.Watch(ctx, seen, func([]byte, error) { reload() })
		})
	}
	err = cli.Serve(cmd.Context(), f.serve, log, admin.Config{
		Ready:   server.Ready,
		Status:  func() any { return server.Status() },
		Metrics: func() []metrics.Sample { return metrics.Of(server.Status()) },
	}, reload, parts...)
	log.Info("stopped")
	return errors.Join(err, server.Close())
}
