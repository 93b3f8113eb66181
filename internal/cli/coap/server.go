package coap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/privilege"
)

// coapServerFlags are the flags of `weir coap server`.
type coapServerFlags struct {
	config      cli.ConfigFile
	members     clusterFlags
	californium californiumOptions
	dtlsOnly    bool
	demo        bool

	multicast    bool
	groups       node.Multicast
	noResumption bool
	nodeID       uint32
	trusted      []string
	serve        cli.ServeFlags
	handover     cli.HandoverFlags
	check        bool
	warnings     []string // of the file
	server       node.Config
}

func newCoapServerCommand() *cobra.Command { return coapServerCommand(new(coapServerFlags)) }

func coapServerCommand(f *coapServerFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server [FILE]",
		Short: "Serve CoAP over UDP, DTLS, TCP and TLS, alone or as nodes of a connection-id cluster",
		Long: `Serve CoAP over UDP, over DTLS 1.2 with connection ids (RFC 9146), and over TCP and TLS (RFC 8323).

Resources: /context, /mycontext, /myip, /benchmark, /requests, /reverse-request, /echo, /separate, /.well-known/core. Without --psk-file and --private-key the public identities of
Californium's sandbox are accepted: cali.* with .fornium, Client_identity with secretPSK, password with sesame. They are
no secret: use --psk-file for anything but tests.

A supervisor process holds sockets and sessions: a crash, kill -9 or 'weir coap upgrade' ends no DTLS session. SIGTERM ends them all,
each with an alert to its client, unless there is --state; with --drain-timeout each behind an answer, one after the other. With --state
a start within --hold-sockets after SIGTERM also finds what clients have sent meanwhile.

--dtls-cluster lists the nodes of a cluster as DTLS-ADDRESS;MANAGEMENT-ADDRESS;ID, separated by commas. A node of another process
has --- in place of its DTLS address. In a cluster the plain listener and the DTLS listener outside of it open only when
--listen or --dtls is given. --dtls-cluster-group lists management addresses at which further nodes are searched for. A secret, of
--dtls-cluster-group-security or of the environment variables DTLS_CID_MGMT_IDENTITY and DTLS_CID_MGMT_SECRET_BASE64, secures what
nodes send each other; without it a management address without a host is bound to loopback.`,
		Example: `  weir coap server
  weir coap server --listen 127.0.0.1:5783 --dtls 127.0.0.1:5784 --psk-file devices.psk
  weir coap server --dtls-cluster ":15784;localhost:15884;1,---;localhost:25884;2" --metrics :9182
  weir coap server --dtls-cluster ":15784;:15884;1" --dtls-cluster-group 192.0.2.2:15884 --dtls-cluster-group-security SECRET
  weir coap server --listen :5683 --dtls :5684 --plugtest
  weir coap server --listen :5683 --multicast
  weir coap server -c node.yaml --log json
  weir coap server -c node.yaml --check`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCoapServer(cmd, f) },
	}
	flags := cmd.Flags()
	f.config.Add(cmd, " (YAML); flags given as well win over it")
	cmd.Args = f.config.Args
	cmd.SetFlagErrorFunc(californiumFlagError)
	flags.StringSliceVar(&f.server.Listen, "listen", nil, "addresses of plain CoAP (default :5783 outside of a cluster)")
	flags.StringSliceVar(&f.server.DTLS, "dtls", nil, "addresses of CoAP over DTLS (default :5784 outside of a cluster)")
	flags.StringSliceVar(&f.server.TCP, "listen-tcp", nil, "addresses of CoAP over TCP (default :5783 if none of these four options is given, outside of a cluster)")
	flags.StringSliceVar(&f.server.TLS, "listen-tls", nil, "addresses of CoAP over TLS (default :5784, if there is a certificate, likewise)")
	f.members.add(flags)
	flags.BoolVar(&f.dtlsOnly, "dtls-only", false, "only listeners for DTLS, and --listen-tls")
	flags.Uint32Var(&f.nodeID, "node-id", 0, "node id of the DTLS listeners outside of a cluster, 0 to 255")
	flags.IntVar(&f.server.CIDLength, "cid-length", 0, "bytes of a connection id, 2 to 16 (default 6)")
	flags.IntVar(&f.server.Workers, "workers", 0, "workers per listener (default one per core)")
	flags.IntVar(&f.server.MaxSessions, "max-sessions", 0, "sessions per worker (default 65536)")
	flags.StringSliceVar(&f.trusted, "trusted", nil, "prefixes whose plain CoAP requests are answered in full without proof of their address, such as 10.0.0.0/8")
	cli.DurationVar(flags, &f.server.SessionIdle, "session-idle", 0, "close DTLS sessions that have been silent for so long (default never)")
	cli.DurationVar(flags, &f.server.DrainTimeout, "drain-timeout", 0, "after SIGTERM without --state end DTLS sessions one after the other within this time (default at once)")
	f.addKeys(flags)
	flags.IntVar(&f.server.BlockSize, "block-size", 0, "longest payload of a message in bytes, a power of two of 16 to 1024 (default 1024, with --plugtest 64)")
	flags.BoolVar(&f.multicast, "multicast", false, "answer discovery at the multicast groups 224.0.1.187, ff02::fd and ff05::fd too, on the ports of --listen")
	flags.StringSliceVar(&f.groups.Interfaces, "multicast-interface", nil, "join the groups only on these interfaces; implies --multicast")
	cli.DurationVar(flags, &f.groups.Leisure, "leisure", 0, "answers to a group leave at a random time within this (default 5s); implies --multicast")
	f.californium.add(flags)
	f.serve.Add(cmd, cli.CoapPart())
	f.handover.Add(cmd, "DTLS sessions", "the DTLS sessions, which a start after the end of every process goes on with: their keys are in it, so it belongs on a tmpfs")
	cli.DurationVar(flags, &f.handover.HoldFor, "hold-sockets", 5*time.Second, "after SIGTERM with --state the UDP sockets stay open for so long, for the next start with that directory; 0: they close at once, as in a service of systemd and with --no-supervisor")
	flags.StringVar(&f.server.Executions, "executions", "", "file to which POST /executions appends what it executes: see docs/bench-chaos.md")
	_ = flags.MarkHidden("executions") // for weir bench run chaos; it exists
	flags.BoolVar(&f.check, "check", false, "check configuration and credentials, open nothing")
	return cmd
}

// addKeys adds what the server and its clients prove who they are with.
func (f *coapServerFlags) addKeys(flags *pflag.FlagSet) {
	flags.StringVar(&f.server.PSKFile, "psk-file", "", "file of IDENTITY=BASE64 or IDENTITY=:0xHEX lines, or a device store of Californium (.psk= and .rpk= lines); read again on SIGHUP and, up to 1 MiB, when it changes")
	flags.StringVar(&f.server.Certificate, "certificate", "", "PEM file of the certificate chain for DTLS and TLS; read again with the PSK file")
	flags.StringVar(&f.server.PrivateKey, "private-key", "", "PEM file of its private key; without --certificate a raw public key")
	flags.StringSliceVar(&f.server.Trust, "trust", nil, "PEM files of certificates and raw public keys of clients that are trusted")
	flags.BoolVar(&f.server.TrustAll, "trust-all", false, "trust the certificate or raw public key of every client")
	flags.StringVar(&f.server.ClientCerts, "client-auth", "", "whether certificates or raw public keys are requested from clients: none, wanted or needed (default none)")
	flags.StringVar(&f.server.OSCOREFile, "oscore", "", "YAML file of OSCORE security contexts (RFC 8613), or test for the public one of Californium's plugtest server, which is served with the sandbox identities anyway")
	flags.BoolVar(&f.server.Shutdown, "shutdown", false, "with --plugtest: anybody ends the server with POST sesame to /shutdown")
	flags.BoolVar(&f.noResumption, "no-resumption", false, "clients cannot resume DTLS sessions")
	flags.StringVar(&f.server.TicketSecrets, "ticket-secrets", "", "file of secrets that seal DTLS session tickets, 32 bytes a line in base64, the newest first, read again on SIGHUP and when it changes: nodes with the same file resume each other's sessions, also after a restart")
	flags.BoolVar(&f.demo, "demo-credentials", false, "accept the sandbox identities in addition to --psk-file or --private-key")
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
	for _, warning := range f.warnings {
		log.Warn(warning, "event", "configuration_warning")
	}
	if f.check {
		if err := cfg.CheckCredentials(); err != nil {
			return cli.UsageError(err)
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "configuration is fine")
		return err
	}
	if handover.Probing() {
		return f.handover.Run(cmd, log, nil)
	}
	privilege.WarnKeyFile(log, "PSK file", cfg.PSKFile)
	privilege.WarnKeyFile(log, "private key", cfg.PrivateKey)
	privilege.WarnKeyFile(log, "OSCORE contexts", cfg.OSCOREFile)
	privilege.WarnKeyFile(log, "ticket secrets", cfg.TicketSecrets)
	if cfg.Cluster != nil && cfg.Cluster.Security != nil {
		privilege.WarnKeyFile(log, "secret of the cluster", cfg.Cluster.Security.File)
	}
	return f.handover.Run(cmd, log, func(ctx context.Context, k *handover.Store) error { return serveCoap(ctx, cmd.Context(), k, f, cfg) })
}

// serveCoap runs in the serving process. ctx ends when another process goes on with the sessions, signalled after a signal to end.
func serveCoap(ctx, signalled context.Context, k *handover.Store, f *coapServerFlags, cfg node.Config) error {
	log := cfg.Log
	if cli.Stores(k) {
		cfg.Store = k
	}
	server, err := node.Open(cfg)
	if err != nil {
		return err
	}
	if dropped := k.DropUntaken(); dropped > 0 {
		log.Info("sockets and sessions of listeners that are no longer configured are dropped", "descriptors", dropped)
	}
	warnOfKeys(log, server, &cfg)
	server.LogStart(log)
	parts := []cli.Loop{server.Run, func(ctx context.Context) error {
		server.Respond()
		k.Ready()
		k.Watch(ctx, server.Respond)
		<-ctx.Done()
		return nil
	}}
	reload := func() {
		if err := server.ReloadCredentials(); err != nil {
			log.Error("keys and certificates not taken over, those before them stay", "error", err)
			return
		}
		log.Info("keys and certificates taken over", "generation", server.Status().Credentials.Generation)
	}
	for _, name := range cfg.CredentialFiles() {
		file := config.NewFile(name)
		seen, err := file.Read()
		if err != nil {
			return errors.Join(err, server.Close())
		}
		parts = append(parts, func(ctx context.Context) error {
			return file.Watch(ctx, seen, func([]byte, error) { reload() })
		})
	}
	if f.members.pods != nil {
		parts = append(parts, f.members.pods.follow(server, log))
	}
	running, end := untilEnd(ctx, signalled, server, k, &cfg)
	defer end()
	hangup := func() <-chan struct{} {
		reload()
		return nil
	}
	err = cli.Serve(running, f.serve, log, coapAdmin(server, k, f.members.pods), hangup, parts...)
	log.Info("stopped")
	return errors.Join(err, server.Close())
}

func warnOfKeys(log *slog.Logger, server *node.Node, cfg *node.Config) {
	if n, line := server.ShortKeys(); n > 0 {
		log.Warn("keys of fewer than 16 bytes can be guessed (RFC 9257 section 6)", "file", cfg.PSKFile, "keys", n, "first_line", line, "remedy", "head -c 16 /dev/urandom | base64")
	}
	if server.ShortClusterSecret() {
		log.Warn("the secret of the cluster has fewer than 16 bytes and can be guessed (RFC 9257 section 6)", "remedy", "head -c 16 /dev/urandom | base64")
	}
	if address := cfg.PublicDemo(); address != "" {
		log.Warn("everybody knows the demo credentials, and other machines reach this address", "address", address, "remedy", "--psk-file, or --dtls 127.0.0.1:5784 for tests")
	}
}
