package handshake

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// Config is what servers and clients have in common. Zero values take the defaults named.
type Config struct {
	Suites []record.Suite // in order of preference; default record.Suites. Those without credentials are passed over
	Groups []Group        // of the ephemeral key exchange, in order of preference; default DefaultGroups
	// Credentials are the certificates and the trusted authorities; nil, or holding nil: none. Store replaces them while handshakes run;
	// sessions are not affected.
	Credentials *atomic.Pointer[Credentials]
	// RequireExtendedMaster refuses peers without RFC 7627. Otherwise it is used whenever the peer has it.
	RequireExtendedMaster bool
	// MACKeys derives Result.ClientMAC and ServerMAC.
	MACKeys bool
	MTU     int              // of the datagrams of a flight, in bytes of UDP payload; default DefaultMTU
	Clock   func() time.Time // for the validity of certificates and tickets; default time.Now
	Rand    io.Reader        // default crypto/rand
}

func (c *Config) defaults() error {
	if len(c.Suites) == 0 {
		c.Suites = record.Suites()
	}
	for _, s := range c.Suites {
		if !s.Known() {
			return fmt.Errorf("handshake: unknown suite 0x%04x", uint16(s))
		}
	}
	if len(c.Groups) == 0 {
		c.Groups = DefaultGroups()
	}
	for _, g := range c.Groups {
		if g.curve() == nil {
			return fmt.Errorf("handshake: unknown group %d", g)
		}
	}
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	if c.MTU < minMTU {
		return fmt.Errorf("handshake: an MTU of %d bytes: want at least %d", c.MTU, minMTU)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	return nil
}

// credentials returns those of this moment, or nil.
func (c *Config) credentials() *Credentials {
	if c.Credentials == nil {
		return nil
	}
	return c.Credentials.Load()
}

// ClientAuth says whether a server asks clients for certificates. It has no effect on suites with pre-shared keys.
type ClientAuth uint8

// Client authentication. The zero value requests none.
const (
	ClientAuthNone   ClientAuth = iota
	ClientAuthWanted            // a client without a certificate is anonymous; one that is not trusted is refused
	ClientAuthNeeded            // a client without a certificate is refused
)

// Auth is how a peer has proven who it is.
type Auth uint8

// Proofs of identity.
const (
	AuthNone   Auth = iota // not at all: a client without a certificate
	AuthPSK                // Identity is the PSK identity
	AuthX509               // Identity is the subject of the certificate
	AuthRawKey             // Identity is the hash of the raw public key, "ni:///sha-256;..." (RFC 6920)
)

// String names the proof.
func (a Auth) String() string {
	switch a {
	case AuthPSK:
		return "psk"
	case AuthX509:
		return "x509"
	case AuthRawKey:
		return "rpk"
	}
	return "none"
}

// ServerConfig is what a Server needs: PSK, or Credentials with a certificate, or both.
type ServerConfig struct {
	Config
	// PSK returns the key of an identity, which is valid during the call only.
	PSK        func(identity []byte) (key []byte, ok bool)
	ClientAuth ClientAuth
	// Admit is asked when a client has returned its cookie, before anything is kept or computed for its handshake; false: its
	// hello is ignored. nil: every client is admitted.
	Admit func(from netip.AddrPort) bool
	// NewCID makes a fresh connection id; nil: none are negotiated. All are of one
	// length.
	NewCID func() ([]byte, error)
	// Resumption, shared by the workers of a node, lets clients resume sessions; nil: every handshake is a full one.
	Resumption   *Resumption
	CookieSecret []byte // CookieSecretLength bytes, shared by all who serve one address; default random
}

func (c *ServerConfig) defaults() error {
	if c.PSK == nil && c.Credentials == nil {
		return errors.New("handshake: neither a PSK look-up nor certificates")
	}
	if err := c.Config.defaults(); err != nil {
		return err
	}
	if c.CookieSecret == nil {
		c.CookieSecret = make([]byte, CookieSecretLength)
		_, err := io.ReadFull(c.Rand, c.CookieSecret)
		return err
	}
	return nil
}

// Alert descriptions (RFC 5246 section 7.2, RFC 7301 and others where named).
const (
	alertHandshakeFailure   = 40
	alertBadCertificate     = 42
	alertCertificateExpired = 45
	alertIllegalParameter   = 47
	alertUnknownCA          = 48
	alertDecryptError       = 51
	alertProtocolVersion    = 70
	alertInternalError      = 80
)
