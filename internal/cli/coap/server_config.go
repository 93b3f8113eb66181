package coap

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/config"
)

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
		{"certificate", func() { cfg.Certificate = f.server.Certificate }},
		{"private-key", func() { cfg.PrivateKey = f.server.PrivateKey }},
		{"trust", func() { cfg.Trust = f.server.Trust }},
		{"trust-all", func() { cfg.TrustAll = f.server.TrustAll }},
		{"client-auth", func() { cfg.ClientCerts = f.server.ClientCerts }},
		{"no-resumption", func() { on := !f.noResumption; cfg.Resume = &on }},
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
