package coap

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

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
		f.warnings = document.Warnings()
	}
	given := cmd.Flags().Changed
	if err := f.apply(&cfg, given); err != nil {
		return cfg, err
	}
	if f.config.Path == "" && cfg.Cluster == nil {
		f.defaults(&cfg, given)
	}
	if on := f.californium.on("tcp"); on != nil && *on && given("tcp") {
		mirror(&cfg)
	}
	return cfg, document.Locate(cfg.Validate())
}

// apply enters the flags that were given.
func (f *coapServerFlags) apply(cfg *node.Config, given func(string) bool) error {
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
		{"drain-timeout", func() { cfg.DrainTimeout = f.server.DrainTimeout }},
		{"psk-file", func() { cfg.PSKFile = f.server.PSKFile }},
		{"certificate", func() { cfg.Certificate = f.server.Certificate }},
		{"private-key", func() { cfg.PrivateKey = f.server.PrivateKey }},
		{"trust", func() { cfg.Trust = f.server.Trust }},
		{"trust-all", func() { cfg.TrustAll = f.server.TrustAll }},
		{"client-auth", func() { cfg.ClientCerts = f.server.ClientCerts }},
		{"oscore", func() { f.oscore(cfg) }},
		{"no-oscore", func() { cfg.OSCOREFile, cfg.OSCORETest = "", new(false) }},
		{"no-resumption", func() { on := !f.noResumption; cfg.Resume = &on }},
		{"shutdown", func() { cfg.Shutdown = f.server.Shutdown }},
		{"ticket-secrets", func() { cfg.TicketSecrets = f.server.TicketSecrets }},
		{"demo-credentials", func() { cfg.DemoCredentials = &f.demo }},
		{"executions", func() { cfg.Executions = f.server.Executions }},
		{"block-size", func() { cfg.BlockSize = f.server.BlockSize }},
		{"interfaces", func() { cfg.Interfaces = f.californium.names }},
		{"interfaces-pattern", func() { cfg.InterfacePatterns = f.californium.patterns }},
	} {
		if given(flag.name) {
			flag.set()
		}
	}
	f.applyMulticast(cfg, given)
	if given("trusted") {
		var err error
		if cfg.Trusted, err = prefixes(f.trusted); err != nil {
			return fmt.Errorf("--trusted: %w", err)
		}
	}
	if err := f.members.apply(cfg, given); err != nil {
		return err
	}
	if err := switches(cfg, &f.californium); err != nil {
		return err
	}
	if f.dtlsOnly {
		if given("listen") {
			return errors.New("--dtls-only and --listen exclude each other; remove one")
		}
		cfg.Listen = nil
	}
	return nil
}

// oscore takes --oscore: a file, or the test context.
func (f *coapServerFlags) oscore(cfg *node.Config) {
	if cfg.OSCOREFile = f.server.OSCOREFile; cfg.OSCOREFile == node.TestOSCORE().Name {
		cfg.OSCOREFile, cfg.OSCORETest = "", new(true)
	}
}

func (f *coapServerFlags) applyMulticast(cfg *node.Config, given func(string) bool) {
	if !given("multicast") && !given("multicast-interface") && !given("leisure") {
		return
	}
	if cfg.Multicast == nil {
		cfg.Multicast = new(node.Multicast)
	}
	if given("multicast-interface") {
		cfg.Multicast.Interfaces = f.groups.Interfaces
	}
	if given("leisure") {
		cfg.Multicast.Leisure = f.groups.Leisure
	}
	if given("multicast") && !f.multicast {
		cfg.Multicast = nil
	}
}

func prefixes(texts []string) (all []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is no prefix; write it as 10.0.0.0/8 or fd00::/8", text)
		}
		all = append(all, prefix)
	}
	return all, nil
}

// switches takes Californium's options, except for the addresses.
func switches(cfg *node.Config, c *californiumOptions) error {
	if err := c.check(cfg.OSCOREFile); err != nil {
		return err
	}
	for _, s := range []struct {
		name string
		set  **bool
	}{{"benchmark", &cfg.Benchmark}, {"external", &cfg.External}, {"loopback", &cfg.Loopback}, {"ipv4", &cfg.IPv4}, {"ipv6", &cfg.IPv6}} {
		if on := c.on(s.name); on != nil {
			*s.set = on
		}
	}
	for _, s := range []struct {
		name string
		set  *bool
	}{{"plugtest", &cfg.Plugtest}, {"echo-delay", &cfg.EchoDelay}, {"diagnose", &cfg.Diagnose}} {
		if on := c.on(s.name); on != nil {
			*s.set = *on
		}
	}
	if err := clusterSwitches(cfg, c); err != nil {
		return err
	}
	if c.off("tcp") {
		cfg.TCP, cfg.TLS = nil, nil
	}
	if c.given("notify-interval") {
		interval, err := parseInterval(c.interval)
		if err != nil {
			return err
		}
		cfg.NotifyInterval = interval
	}
	return nil
}

// defaults sets the listeners that were not given: of the extended plugtest server and, with --plugtest, of the plugtest server.
func (f *coapServerFlags) defaults(cfg *node.Config, given func(string) bool) {
	chosen := given("listen") || given("dtls") || given("listen-tcp") || given("listen-tls")
	all := node.Addresses{Listen: []string{":5783"}, DTLS: []string{":5784"}, TCP: []string{":5783"}, TLS: []string{":5784"}}
	plugtest := node.Addresses{Listen: []string{":5683"}, DTLS: []string{":5684"}, TCP: []string{":5683"}, TLS: []string{":5684"}}
	if cfg.Certificate == "" && cfg.PSKFile != "" && (cfg.DemoCredentials == nil || !*cfg.DemoCredentials) {
		all.TLS, plugtest.TLS = nil, nil
	}
	if f.californium.off("tcp") || f.dtlsOnly || chosen {
		all.TCP, all.TLS, plugtest.TCP, plugtest.TLS = nil, nil, nil, nil
	}
	if f.dtlsOnly {
		all.Listen, plugtest.Listen = nil, nil
	}
	if !chosen && cfg.Plugtest {
		cfg.Plugtest, cfg.PlugtestAt = false, &plugtest
	}
	if !given("listen") && !given("listen-tcp") {
		cfg.Listen = all.Listen
	}
	if !given("dtls") && !given("listen-tls") {
		cfg.DTLS = all.DTLS
	}
	if !chosen {
		cfg.TCP, cfg.TLS = all.TCP, all.TLS
	}
}

// mirror serves TCP and TLS at the addresses of UDP and DTLS, unless there are others.
func mirror(cfg *node.Config) {
	if cfg.TCP == nil {
		cfg.TCP = cfg.Listen
	}
	if cfg.TLS == nil {
		cfg.TLS = cfg.DTLS
	}
}
