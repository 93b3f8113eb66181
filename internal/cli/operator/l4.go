package operator

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/discovery"
	"github.com/weir-lb/weir/internal/kube/l4"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/publish"
	"github.com/weir-lb/weir/internal/readfile"
)

// l4Flags are those of the controller for layer 4.
type l4Flags struct {
	pools    []string
	output   string
	balancer string
	token    string
	hashKey  string
	announce string

	listen, cert, key, nodeToken string // of the config discovery service
	advertise                    string
}

func (f *l4Flags) add(set *pflag.FlagSet) {
	set.StringSliceVar(&f.pools, "address-pool", nil, "prefix whose addresses Gateways and Services get, such as 192.0.2.0/24; without any they get what they ask for")
	set.StringVar(&f.output, "config-out", "", "file of the load balancer's configuration, which weir lb run on this machine follows")
	set.StringVar(&f.balancer, "balancer", "", "admin address of that weir lb run, which says what it has applied, such as unix:/run/weir/lb.sock or 127.0.0.1:9180 (default that of weir lb run)")
	set.StringVar(&f.token, "balancer-token-file", "", "file with the token that HOST:PORT of --balancer needs")
	set.StringVar(&f.hashKey, "hash-key-file", "", "file with 32 hexadecimal digits, the key of the hash that spreads flows; keep it secret, and give all operators the same one (default none: anyone can craft flows that all hit one Pod)")
	set.StringVar(&f.announce, "announce", "", "YAML file with an announce section as in a configuration of weir lb run: load balancers announce the addresses of Gateways and Services by BGP and VRRP (default they do not)")
	set.StringVar(&f.listen, "lb-discovery", "", "HOST:PORT of the config discovery service, in place of --config-out: load balancers of any number of nodes follow it with weir lb run --source (default nowhere)")
	set.StringVar(&f.cert, "lb-discovery-tls-cert", "", "PEM file with the certificate of --lb-discovery, and those of its authorities")
	set.StringVar(&f.key, "lb-discovery-tls-key", "", "PEM file with its private key")
	set.StringVar(&f.nodeToken, "lb-discovery-token-file", "", "file with the bearer token that load balancers must have (default none)")
	set.StringVar(&f.advertise, "lb-discovery-advertise", "", "IP address at which the other operators reach the --lb-discovery of this one: then each of them serves, not the leader alone; with --leader-election-namespace and TLS")
}

func (f *l4Flags) controller(log *slog.Logger) (c operator.Controller, d *publish.Discovery, err error) {
	o := l4.Options{}
	if f.hashKey != "" {
		if o.HashKey, err = readHashKey(f.hashKey); err != nil {
			return c, nil, fmt.Errorf("--hash-key-file: %w", err)
		}
	}
	for _, text := range f.pools {
		pool, err := netip.ParsePrefix(text)
		if err != nil {
			return c, nil, fmt.Errorf("--address-pool %q: write a prefix such as 192.0.2.0/24", text)
		}
		o.Pools = append(o.Pools, pool.Masked())
	}
	if f.announce != "" {
		if o.Announce, err = readAnnouncement(f.announce, o.Pools); err != nil {
			return c, nil, fmt.Errorf("--announce: %w", err)
		}
	}
	switch {
	case f.listen != "":
		d, err := f.discovery(log)
		if err != nil {
			return c, nil, err
		}
		o.Publisher = d
		return l4.Controller(o), d, nil
	case f.cert+f.key+f.nodeToken+f.advertise != "":
		return c, nil, errors.New("--lb-discovery-tls-cert, --lb-discovery-tls-key, --lb-discovery-token-file and --lb-discovery-advertise are about --lb-discovery; give it too")
	case f.output != "":
		balancer, err := f.client()
		if err != nil {
			return c, nil, err
		}
		o.Publisher = publish.NewFile(l4.Plane, f.output, balancer.LBStatus, log)
	case f.balancer != "":
		return c, nil, errors.New("--balancer without --config-out: name the file that the load balancer follows")
	}
	return l4.Controller(o), nil, nil
}

// readHashKey reads a key as openssl rand -hex 16 writes it. Errors have nothing of it.
func readHashKey(path string) (string, error) {
	const longest = 4096
	text, err := readfile.Once(path, longest)
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(text))
	if raw, err := hex.DecodeString(key); err != nil || len(raw) != 16 {
		return "", fmt.Errorf("%s has no key; write 32 hexadecimal digits, for instance from `openssl rand -hex 16`", path)
	}
	return key, nil
}

// discovery is the service that load balancers follow.
func (f *l4Flags) discovery(log *slog.Logger) (d *publish.Discovery, err error) {
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return nil, fmt.Errorf("--lb-discovery %q: write HOST:PORT or :PORT", f.listen)
	}
	switch {
	case f.output+f.balancer+f.token != "":
		return nil, errors.New("--lb-discovery with --config-out, --balancer or --balancer-token-file: the configuration goes to the service or to a file; leave one out")
	case (f.cert == "") != (f.key == ""):
		return nil, errors.New("--lb-discovery-tls-cert and --lb-discovery-tls-key belong together; give both or none")
	}
	o := publish.DiscoveryOptions{Listen: f.listen, CertFile: f.cert, KeyFile: f.key, TokenFile: f.nodeToken, Log: log.With("scope", "l4")}
	if f.advertise != "" {
		if f.cert == "" {
			return nil, errors.New("--lb-discovery-advertise without TLS: operators trust each other by their certificate; give --lb-discovery-tls-cert and --lb-discovery-tls-key")
		}
		if _, err := netip.ParseAddr(f.advertise); err != nil {
			return nil, fmt.Errorf("--lb-discovery-advertise %q: write an IP address of this operator, such as that of its Pod", f.advertise)
		}
		o.Name = f.labels()[advertised]
	}
	if f.nodeToken == "" {
		log.Warn("everyone who reaches --lb-discovery gets the configuration and may report it as applied; require a token with --lb-discovery-token-file", "address", f.listen)
	} else {
		o.Token = func() (string, error) { return cli.ReadToken(f.nodeToken) }
		if _, err := o.Token(); err != nil {
			return nil, fmt.Errorf("--lb-discovery-token-file: %w", err)
		}
	}
	if d, err = publish.NewDiscovery(l4.Plane, o); err != nil {
		return nil, fmt.Errorf("--lb-discovery-tls-cert: %w", err)
	}
	return d, nil
}

// advertised is the label of the Lease with the leader's --lb-discovery-advertise and its port.
const advertised = "weir-lb.github.io/lb-discovery"

// labels are those of the Lease. A label's value has no colons.
func (f *l4Flags) labels() map[string]string {
	if f.advertise == "" {
		return nil
	}
	address, _ := netip.ParseAddr(f.advertise) // checked
	_, port, _ := net.SplitHostPort(f.listen)  // checked
	return map[string]string{advertised: strings.ReplaceAll(address.StringExpanded(), ":", "-") + "_" + port}
}

// leader is the service of the operator with these labels of its Lease.
func (f *l4Flags) leader(labels map[string]string) (o discovery.Origin, err error) {
	if labels[advertised] == f.labels()[advertised] {
		return o, errors.New("this operator is about to lead")
	}
	text, port, ok := strings.Cut(labels[advertised], "_")
	address, err := netip.ParseAddr(strings.ReplaceAll(text, "-", ":"))
	if !ok || err != nil {
		return o, errors.New("the operator that leads names no address of its --lb-discovery; give it --lb-discovery-advertise")
	}
	return discovery.ParseOrigin("https://" + net.JoinHostPort(address.String(), port))
}

// client is for the load balancer that follows the file.
func (f *l4Flags) client() (*client.Client, error) {
	address := f.balancer
	if address == "" {
		address = cli.LBPart().Address()
	}
	token, err := cli.ReadToken(f.token)
	if err != nil {
		return nil, err
	}
	return client.New(address, token, cli.LBPart().Name), nil
}
