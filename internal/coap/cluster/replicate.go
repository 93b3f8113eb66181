package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weir-lb/weir/internal/coap/cluster/store"
	"github.com/weir-lb/weir/internal/coap/cluster/store/embedded"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/readfile"
)

// Replicate says where the nodes agree on who has the sessions of a node that has crashed.
type Replicate struct {
	// Embedded: directory of this node's part of a store that the nodes themselves are, three to seven of them; it has to outlive the machine's memory.
	Embedded string   `yaml:"embedded,omitempty" default:"none"`
	Etcd     []string `yaml:"etcd,omitempty" default:"none" bounds:"URLs"` // servers of an etcd cluster, http://HOST:PORT or https://HOST:PORT
	Prefix   string   `yaml:"prefix,omitempty" default:"/weir/sessions"`   // of the keys in etcd; each cluster of nodes needs its own
	CA       string   `yaml:"ca,omitempty" default:"those of the system"`  // PEM file of the authorities that https servers are trusted by
	// Certificate: PEM file with which the node proves who it is to https servers.
	Certificate string `yaml:"certificate,omitempty" default:"none"`
	PrivateKey  string `yaml:"private_key,omitempty" default:"none"` // PEM file of its key

	// Username and Password of etcd; empty: none.
	Username string `yaml:"-"`
	Password string `yaml:"-"`
	// Store is used instead of Etcd: Leases of Kubernetes, or one for tests.
	Store Store `yaml:"-"`
}

// DefaultPrefix is that of Replicate.Prefix.
const DefaultPrefix = "/weir/sessions"

const (
	maxEndpoints = 16
	maxPrefix    = 256
	maxPEM       = 1 << 20
)

func (c *Config) validateReplicate() error {
	r := c.Replicate
	if r == nil {
		return nil
	}
	var wrong keyerror.List
	wrong.If(c.Security == nil, "replicate", "the link between the nodes is not secured, and the keys of sessions would travel in clear; set security (--dtls-cluster-group-security)")
	wrong.If(len(c.Own()) > 1, "replicate", "this process runs %d nodes of the cluster, and a crash ends them all; run each in a process of its own", len(c.Own()))
	wrong.If(len(r.Etcd) == 0 && r.Embedded == "" && r.Store == nil, "replicate.etcd", "without a store nodes cannot agree on who has the sessions of another; name the servers of an etcd cluster, such as http://192.0.2.1:2379, kubernetes where the nodes are its Pods, or embedded:DIRECTORY with three nodes or more")
	wrong.If(len(r.Etcd) > maxEndpoints, "replicate.etcd", "%d servers, at most %d", len(r.Etcd), maxEndpoints)
	wrong.If(r.Embedded != "" && (len(r.Etcd) > 0 || r.Store != nil), "replicate.embedded", "it and another store exclude each other; remove one")
	if r.Embedded != "" {
		wrong.Add(c.validateEmbedded())
	}
	secure := false
	for i, text := range r.Etcd {
		u, err := url.Parse(text)
		bad := err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Port() == "" || u.Path != "" || u.RawQuery != "" || u.User != nil
		wrong.If(bad, fmt.Sprintf("replicate.etcd[%d]", i), "%q is no server; write http://HOST:PORT or https://HOST:PORT", text)
		secure = secure || !bad && u.Scheme == "https"
	}
	wrong.If(r.Prefix != "" && (!strings.HasPrefix(r.Prefix, "/") || strings.HasSuffix(r.Prefix, "/") || len(r.Prefix) > maxPrefix), "replicate.prefix", "%q must begin with / and not end with it, and have at most %d bytes", r.Prefix, maxPrefix)
	wrong.If((r.Certificate == "") != (r.PrivateKey == ""), "replicate.certificate", "certificate and private_key need each other; set both or none")
	wrong.If(!secure && len(r.Etcd) > 0 && (r.CA != "" || r.Certificate != ""), "replicate.etcd", "ca and certificate are for https, and no server has it")
	return wrong.Err()
}

// validateEmbedded checks the members of a store that the nodes are.
func (c *Config) validateEmbedded() error {
	var wrong keyerror.List
	const why = "a majority of the nodes decides, and "
	switch n := len(c.Nodes); {
	case len(c.Group) > 0 || c.Discovered:
		wrong.If(true, "replicate.embedded", why+"it has to be known of how many; name all nodes (--dtls-cluster) instead of a group, or take another store")
	case n < embedded.MinMembers:
		wrong.If(true, "replicate.embedded", why+"of %d nodes none may fail; add nodes until there are %d, or take another store", n, embedded.MinMembers)
	case n > embedded.MaxMembers:
		wrong.If(true, "replicate.embedded", why+"of %d nodes too many would have to agree on each change; at most %d, or take another store", n, embedded.MaxMembers)
	}
	for i, n := range c.Nodes {
		host, _, _ := net.SplitHostPort(n.Management)
		address, err := netip.ParseAddr(host)
		wrong.If(n.Own() && (host == "" || err == nil && address.IsUnspecified()), fmt.Sprintf("nodes[%d].management", i),
			"%q names no host; the embedded store needs the address by which the other nodes name this one", n.Management)
	}
	return wrong.Err()
}

// open opens the store. Whether it answers is learned later: a node serves without.
func (r *Replicate) open(c *Cluster, cfg *Config) (Store, error) {
	if r.Store != nil {
		return r.Store, nil
	}
	secure, err := r.tls()
	if err != nil {
		return nil, err
	}
	prefix := r.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if r.Embedded != "" {
		own := embedded.Config{Directory: r.Embedded, Prefix: prefix, Secret: cfg.Security.Secret, Node: c.self, Listen: c.address, Log: c.log}
		for _, n := range cfg.Nodes {
			own.Members = append(own.Members, embedded.Member{Node: n.ID, Address: n.Management})
		}
		return embedded.Open(own), nil
	}
	etcd, err := store.OpenEtcd(store.EtcdConfig{Endpoints: r.Etcd, Prefix: prefix, TLS: secure, Username: r.Username, Password: r.Password})
	if err != nil {
		return nil, keyerror.At("replicate.etcd", err)
	}
	return etcd, nil
}

// tls returns how to talk to https servers; nil: there is none.
func (r *Replicate) tls() (*tls.Config, error) {
	secure := false
	for _, text := range r.Etcd {
		secure = secure || strings.HasPrefix(text, "https:")
	}
	if !secure {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.CA != "" {
		text, err := readfile.Read(r.CA, maxPEM)
		if err != nil {
			return nil, keyerror.At("replicate.ca", err)
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, keyerror.At("replicate.ca", fmt.Errorf("%s holds no certificate in PEM", r.CA))
		}
	}
	if r.Certificate != "" {
		chain, err1 := readfile.Read(r.Certificate, maxPEM)
		key, err2 := readfile.Read(r.PrivateKey, maxPEM)
		if err := errors.Join(err1, err2); err != nil {
			return nil, keyerror.At("replicate.certificate", err)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return nil, keyerror.At("replicate.certificate", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
