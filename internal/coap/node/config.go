package node

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/dtls/credentials"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/keyerror"
)

// Config is one server process. Zero values take the defaults named.
type Config struct {
	Listen []string `yaml:"listen,omitempty" default:"none" bounds:"HOST:PORT or :PORT"`     // addresses of plain CoAP over UDP
	DTLS   []string `yaml:"dtls,omitempty" default:"none" bounds:"HOST:PORT or :PORT"`       // addresses of CoAP over DTLS outside of a cluster
	TCP    []string `yaml:"listen_tcp,omitempty" default:"none" bounds:"HOST:PORT or :PORT"` // addresses of CoAP over TCP
	TLS    []string `yaml:"listen_tls,omitempty" default:"none" bounds:"HOST:PORT or :PORT"` // addresses of CoAP over TLS
	// PlugtestAt: further listeners, with the plugtest profile: its resources, and blocks of 64 bytes.
	PlugtestAt *Addresses `yaml:"plugtest_at,omitempty" default:"none"`

	// Which addresses of this host an address without a host stands for; without any of these keys every one. Link-local IPv6
	// addresses are never among them.
	External          *bool    `yaml:"external,omitempty" default:"true"`           // addresses that are not loopback
	Loopback          *bool    `yaml:"loopback,omitempty" default:"true"`           // loopback addresses
	IPv4              *bool    `yaml:"ipv4,omitempty" default:"true"`               // IPv4 addresses
	IPv6              *bool    `yaml:"ipv6,omitempty" default:"true"`               // IPv6 addresses
	Interfaces        []string `yaml:"interfaces,omitempty" default:"all"`          // only those of these interfaces
	InterfacePatterns []string `yaml:"interfaces_pattern,omitempty" default:"none"` // only those of interfaces whose whole name one of these regular expressions matches

	// Multicast: answer discovery at multicast groups too, on the ports of the listeners for plain CoAP over UDP.
	Multicast *Multicast `yaml:"multicast,omitempty" default:"none"`

	// Cluster: nodes that share sessions by connection id; adds a DTLS listener for each own node.
	Cluster *cluster.Config `yaml:"cluster,omitempty" default:"none"`

	NodeID      *uint32       `yaml:"node_id,omitempty" default:"none" range:"0 to 255"`            // node id of the DTLS listeners outside of a cluster
	CIDLength   int           `yaml:"cid_length,omitempty" default:"6" range:"2 to 16"`             // bytes of a connection id
	Workers     int           `yaml:"workers,omitempty" default:"one per core" range:"1 to 256"`    // workers of each listener
	MaxSessions int           `yaml:"max_sessions,omitempty" default:"65536" range:"1 to 16777216"` // sessions of each worker
	SessionIdle time.Duration `yaml:"session_idle,omitempty" default:"never" range:"10s to 8760h"`  // closes DTLS sessions that have been silent for so long

	// DrainTimeout: after SIGTERM without a state directory DTLS sessions end one after the other within this time, each behind an answer.
	DrainTimeout time.Duration `yaml:"drain_timeout,omitempty" default:"0s" range:"0s to 1h"`

	StreamIdle time.Duration `yaml:"stream_idle,omitempty" default:"1h" range:"10s to 8760h"` // closes TCP and TLS connections that have been silent for so long

	// Trusted: sources whose plain requests are answered in full at once: in a network in which no one can forge a source.
	// Others but loopback get at most three times what they send until they have proven their address.
	Trusted []netip.Prefix `yaml:"trusted,omitempty" default:"none" bounds:"prefixes"`

	PSKFile         string `yaml:"psk_file,omitempty" default:"none"`                                                         // file of IDENTITY=BASE64 lines, or a device store of Californium with .psk= and .rpk= lines
	OSCOREFile      string `yaml:"oscore,omitempty" default:"none"`                                                           // file of security contexts (RFC 8613)
	OSCORETest      *bool  `yaml:"oscore_test,omitempty" default:"true with demo_credentials and without oscore, else false"` // serve the public test context of Californium's plugtest server
	DemoCredentials *bool  `yaml:"demo_credentials,omitempty" default:"true without psk_file and private_key, else false"`    // accept the public identities of Californium's sandbox

	// Certificate and PrivateKey: PEM files, for DTLS and TLS. A private key without a certificate is a raw public key, over DTLS only.
	Certificate string   `yaml:"certificate,omitempty" default:"none, with demo_credentials one that ends with the process"` // PEM file of the chain, the own certificate first
	PrivateKey  string   `yaml:"private_key,omitempty" default:"none"`                                                       // PEM file
	Trust       []string `yaml:"trust,omitempty" default:"none"`                                                             // PEM files of certificates and raw public keys of clients
	TrustAll    bool     `yaml:"trust_all,omitempty" default:"false"`                                                        // trust the certificate or raw public key of every client
	ClientCerts string   `yaml:"client_auth,omitempty" default:"none" bounds:"none, wanted or needed"`                       // whether certificates or raw public keys are requested from clients
	Resume      *bool    `yaml:"resumption,omitempty" default:"true"`                                                        // let clients resume DTLS sessions
	// TicketSecrets: file of secrets that seal session tickets, 32 bytes a line in base64, the newest first: nodes with the same file resume each
	// other's DTLS sessions, also after a restart.
	TicketSecrets string `yaml:"ticket_secrets,omitempty" default:"none: one of the process"`

	Benchmark *bool `yaml:"benchmark,omitempty" default:"true"`   // serve /benchmark
	Diagnose  bool  `yaml:"diagnose,omitempty" default:"false"`   // serve the counters at /diagnose, to everybody
	EchoDelay bool  `yaml:"echo_delay,omitempty" default:"false"` // /echo takes delay=1..60000, in milliseconds
	// BlockSize: longest payload of a message in bytes, a power of two; longer ones are sent in blocks.
	BlockSize int `yaml:"block_size,omitempty" default:"1024, with plugtest 64" range:"16 to 1024"`
	// Plugtest: serve the resources of Californium's plugtest server as well; anybody may change what they hold.
	Plugtest bool `yaml:"plugtest,omitempty" default:"false"`
	// Shutdown: anybody ends the server with POST sesame to /shutdown of the plugtest resources.
	Shutdown       bool          `yaml:"shutdown,omitempty" default:"false"`
	NotifyInterval time.Duration `yaml:"notify_interval,omitempty" default:"5s" range:"5ms to 1h"` // period of /benchmark, /obs and its siblings
	SeparateDelay  time.Duration `yaml:"separate_delay,omitempty" default:"1s" range:"0s to 1m"`   // delay of the answers of /separate
	AckTimeout     time.Duration `yaml:"ack_timeout,omitempty" default:"2s" range:"100ms to 1m"`   // first retransmission of a confirmable message, at least (RFC 7252 ACK_TIMEOUT)

	// Credentials are the certificates of the DTLS listeners and the authorities they trust; nil: those of the files. Store replaces them
	// while the node serves. ClientAuth says whether certificates are requested from clients; ClientCerts, if not empty, says it too.
	Credentials *atomic.Pointer[handshake.Credentials] `yaml:"-"`
	ClientAuth  handshake.ClientAuth                   `yaml:"-"`
	// TLSConfig is that of the TLS listeners; nil: with the certificate of the files.
	TLSConfig *tls.Config `yaml:"-"`
	// Resumption is what several nodes share to resume DTLS sessions; nil: this node has its own, if Resume says so.
	Resumption *handshake.Resumption `yaml:"-"`

	// Store holds sockets and sessions beyond the process; nil: they end with it.
	Store Store `yaml:"-"`

	// Executions: file to which POST /executions appends a record of ExecutionSize bytes of each request that it executes: client and serial
	// number, 4 bytes each, as the payload begins with them, and the process id. For tests that no request is executed twice. Empty: there is no such resource.
	Executions string `yaml:"-"`

	Version string       `yaml:"-"` // the "server" line of /context is "Weir " and this
	Log     *slog.Logger `yaml:"-"`
}

// Addresses are listeners of each kind.
type Addresses struct {
	Listen []string `yaml:"listen,omitempty" default:"none" bounds:"HOST:PORT or :PORT"`     // addresses of plain CoAP over UDP
	DTLS   []string `yaml:"dtls,omitempty" default:"none" bounds:"HOST:PORT or :PORT"`       // addresses of CoAP over DTLS
	TCP    []string `yaml:"listen_tcp,omitempty" default:"none" bounds:"HOST:PORT or :PORT"` // addresses of CoAP over TCP
	TLS    []string `yaml:"listen_tls,omitempty" default:"none" bounds:"HOST:PORT or :PORT"` // addresses of CoAP over TLS
}

// plugtestAddresses are those of PlugtestAt.
func (c *Config) plugtestAddresses() Addresses {
	if c.PlugtestAt == nil {
		return Addresses{}
	}
	return *c.PlugtestAt
}

// Bounds of Config.
const (
	minCID     = 2
	maxCID     = 16
	maxWorkers = 256

	maxConnections = 16384 // of TCP and TLS, per worker

	minSessionIdle = 10 * time.Second
	maxSessionIdle = 365 * 24 * time.Hour
	maxDrain       = time.Hour
)

// Validate reports invalid values: a [keyerror.Error], or [keyerror.Errors].
func (c *Config) Validate() error {
	more := c.plugtestAddresses()
	if len(c.Listen)+len(c.DTLS)+len(c.TCP)+len(c.TLS)+len(more.Listen)+len(more.DTLS)+len(more.TCP)+len(more.TLS) == 0 && c.Cluster == nil {
		return keyerror.Errorf("listen", "nothing to serve; set listen, dtls, listen_tcp, listen_tls or cluster, for example listen: [\":5783\"]")
	}
	var wrong keyerror.List
	taken := map[string]string{}
	wrong.Add(checkAddresses(taken, addressList{"listen", c.Listen}, addressList{"dtls", c.DTLS}, addressList{"plugtest_at.listen", more.Listen}, addressList{"plugtest_at.dtls", more.DTLS}))
	wrong.Add(checkAddresses(map[string]string{}, addressList{"listen_tcp", c.TCP}, addressList{"listen_tls", c.TLS}, addressList{"plugtest_at.listen_tcp", more.TCP}, addressList{"plugtest_at.listen_tls", more.TLS}))
	if c.Cluster != nil {
		wrong.Add(keyerror.At("cluster", c.Cluster.Validate()))
		for _, own := range c.Cluster.Own() {
			other, ok := taken[own.DTLS]
			wrong.If(ok, "cluster.nodes", "%s of node %d is taken by %s; each listener needs its own", own.DTLS, own.ID, other)
		}
	}
	_, err := c.hosts()
	wrong.Add(err)
	if c.Multicast != nil {
		wrong.Add(keyerror.At("multicast", c.Multicast.validate(len(c.Listen)+len(more.Listen) > 0)))
	}
	wrong.Add(c.validateSizes())
	return wrong.Err()
}

// addressList is the addresses of one key.
type addressList struct {
	key   string
	items []string
}

// checkAddresses checks addresses of one protocol below that of CoAP, and enters them in taken.
func checkAddresses(taken map[string]string, lists ...addressList) error {
	var wrong keyerror.List
	for _, list := range lists {
		for i, address := range list.items {
			key := fmt.Sprintf("%s[%d]", list.key, i)
			wrong.Add(keyerror.At(key, checkAddress(address)))
			other, ok := taken[address]
			wrong.If(ok && !freePort(address), key, "%s is taken by %s; each listener needs its own", address, other)
			taken[address] = key
		}
	}
	return wrong.Err()
}

func (c *Config) validateSizes() error {
	var wrong keyerror.List
	for i, p := range c.Trusted {
		wrong.If(!p.IsValid() || p.Addr().Is4In6(), fmt.Sprintf("trusted[%d]", i), "%s is no prefix; write it as 10.0.0.0/8 or fd00::/8", p)
	}
	wrong.Add(c.checkTickets())
	if id := c.NodeID; id != nil {
		wrong.If(*id > 255, "node_id", "%d does not fit the one byte of node id in the connection id; use 0 to 255", *id)
	}
	wrong.If(c.CIDLength != 0 && (c.CIDLength < minCID || c.CIDLength > maxCID), "cid_length", "%d is not between %d and %d; Californium uses 6", c.CIDLength, minCID, maxCID)
	wrong.If(c.Workers < 0 || c.Workers > maxWorkers, "workers", "%d is not between 0 (one per core) and %d", c.Workers, maxWorkers)
	wrong.If(c.MaxSessions < 0 || c.MaxSessions > 1<<24, "max_sessions", "%d is not between 0 (default) and %d", c.MaxSessions, 1<<24)
	wrong.If(c.SessionIdle != 0 && (c.SessionIdle < minSessionIdle || c.SessionIdle > maxSessionIdle), "session_idle", "%s is not 0 (never) and not between %s and %s", c.SessionIdle, minSessionIdle, maxSessionIdle)
	wrong.If(c.StreamIdle != 0 && (c.StreamIdle < minSessionIdle || c.StreamIdle > maxSessionIdle), "stream_idle", "%s is not between %s and %s", c.StreamIdle, minSessionIdle, maxSessionIdle)
	wrong.If(c.DrainTimeout < 0 || c.DrainTimeout > maxDrain, "drain_timeout", "%s is not between 0s and %s", c.DrainTimeout, maxDrain)
	wrong.If(c.BlockSize != 0 && (c.BlockSize < 16 || c.BlockSize > 1024 || c.BlockSize&(c.BlockSize-1) != 0), "block_size", "%d is no block size of RFC 7959; use 16, 32, 64, 128, 256, 512 or 1024", c.BlockSize)
	wrong.If(c.ClientCerts != "" && !slices.Contains([]string{"none", "wanted", "needed"}, strings.ToLower(c.ClientCerts)), "client_auth", "%q is not none, wanted or needed", c.ClientCerts)
	wrong.If(c.Certificate != "" && c.PrivateKey == "", "certificate", "it needs private_key, the key that it was made for")
	wrong.If(len(c.TLS)+len(c.plugtestAddresses().TLS) > 0 && c.TLSConfig == nil && c.Certificate == "" && !c.demo(), "listen_tls", "TLS needs certificate and private_key; weir coap certs writes some for tests")
	wrong.If(c.clientAuth() != handshake.ClientAuthNone && c.Credentials == nil && !c.TrustAll && len(c.Trust) == 0 && !c.demo() && c.PSKFile == "", "client_auth", "no client can be trusted; set trust, or trust_all")
	wrong.If(c.Shutdown && !c.Plugtest && c.PlugtestAt == nil, "shutdown", "/shutdown is a resource of the plugtest server; set plugtest or plugtest_at, or remove it")
	wrong.If(c.NotifyInterval != 0 && (c.NotifyInterval < 5*time.Millisecond || c.NotifyInterval > time.Hour), "notify_interval", "%s is not between 5ms and 1h", c.NotifyInterval)
	wrong.If(c.AckTimeout != 0 && (c.AckTimeout < 100*time.Millisecond || c.AckTimeout > time.Minute), "ack_timeout", "%s is not between 100ms and 1m", c.AckTimeout)
	wrong.If(c.SeparateDelay < 0 || c.SeparateDelay > time.Minute, "separate_delay", "%s is not between 0 and 1m", c.SeparateDelay)
	return wrong.Err()
}

func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is no address; write HOST:PORT or :PORT", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: port must be 0 (any free one) to 65535", s)
	}
	return nil
}

// exponent is the block size of a listener as the exponent of 16 << exponent.
func (c *Config) exponent(plugtest bool) uint32 {
	if c.BlockSize == 0 {
		if plugtest {
			return 2
		}
		return 6
	}
	return uint32(bits.TrailingZeros(uint(c.BlockSize))) - 4
}

func freePort(s string) bool {
	_, port, _ := net.SplitHostPort(s)
	return port == "0"
}

// trusts reports whether plain requests from address need no proof of it. A loopback source cannot be forged from outside.
func (c *Config) trusts(address netip.Addr) bool {
	return address.IsLoopback() || slices.ContainsFunc(c.Trusted, func(p netip.Prefix) bool { return p.Contains(address.WithZone("")) })
}

// PublicDemo returns the first DTLS address that other machines reach and that accepts the public demo credentials; "": none.
func (c *Config) PublicDemo() string {
	if !c.demo() {
		return ""
	}
	addresses := append(slices.Clone(c.DTLS), c.plugtestAddresses().DTLS...)
	if c.Cluster != nil {
		for _, n := range c.Cluster.Nodes {
			if n.Own() {
				addresses = append(addresses, n.DTLS)
			}
		}
	}
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if ip, e := netip.ParseAddr(host); err == nil && host != "localhost" && (e != nil || !ip.IsLoopback()) {
			return address
		}
	}
	return ""
}

func (c *Config) demo() bool {
	if c.DemoCredentials != nil {
		return *c.DemoCredentials
	}
	return c.PSKFile == "" && c.PrivateKey == ""
}

// files are the certificate files of the configuration.
func (c *Config) files() credentials.Files {
	f := credentials.Files{
		Chain: c.Certificate, Key: c.PrivateKey, Trust: c.Trust, TrustAll: c.TrustAll,
		Keys: credentials.Keys{Chain: "certificate", Key: "private_key", Trust: "trust"},
	}
	if f.Chain == "" {
		f.Key, f.RawKey = "", c.PrivateKey
	}
	return f
}

// CredentialFiles are the files of keys and certificates, to watch for a change.
func (c *Config) CredentialFiles() []string {
	files := c.files()
	names := files.Names()
	for _, name := range []string{c.PSKFile, c.TicketSecrets} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// clientAuth says whether certificates are requested from clients.
func (c *Config) clientAuth() handshake.ClientAuth {
	switch strings.ToLower(c.ClientCerts) {
	case "none":
		return handshake.ClientAuthNone
	case "wanted":
		return handshake.ClientAuthWanted
	case "needed":
		return handshake.ClientAuthNeeded
	}
	return c.ClientAuth
}

// WithDefaults fills in what was left out.
func (c Config) WithDefaults() Config {
	if c.CIDLength == 0 {
		c.CIDLength = 6
	}
	if c.Multicast != nil {
		complete := *c.Multicast
		if complete.Leisure == 0 {
			complete.Leisure = 5 * time.Second
		}
		c.Multicast = &complete
	}
	if c.NotifyInterval == 0 {
		c.NotifyInterval = 5 * time.Second
	}
	if c.SeparateDelay == 0 {
		c.SeparateDelay = time.Second
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = 2 * time.Second
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = 65536
	}
	if c.Resume == nil {
		c.Resume = new(true)
	}
	if c.Benchmark == nil {
		c.Benchmark = new(true)
	}
	if c.Cluster != nil && c.Cluster.Backward == nil {
		members := *c.Cluster
		members.Backward = new(true)
		c.Cluster = &members
	}
	if c.Version == "" {
		c.Version = "(devel)"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
