package client

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// Security is how a client proves itself to a server, and which servers it trusts. The zero value is a pre-shared key that
// Californium's demo server takes. It has no effect without DTLS.
type Security struct {
	// Identity and Secret are the pre-shared key. Where Credentials is nil, they default to NewIdentity and DefaultSecret;
	// otherwise an empty Identity offers no pre-shared key.
	Identity string
	Secret   []byte
	// Credentials are certificates and raw public keys: ours, and those to trust. nil: none.
	Credentials *handshake.Credentials
	// ServerName is the name that the server's certificate must be valid for; default: the host of the URI.
	ServerName string
	Suites     []record.Suite // in order of preference; nil: all that the above allow

	CIDLength         int  // in bytes of the connection id this client receives with; 0 is fine: the server's is the one that matters
	NoCID             bool // do not offer a connection id
	RecordSizeLimit   int  // RFC 8449, in bytes; 0: not offered
	MaxFragmentLength int  // RFC 6066 section 4, in bytes; 0: not offered
	// Resumable requests a session that can be resumed; Resume, of an earlier Session.Resumption, is resumed.
	Resumable bool
	Resume    *handshake.Session
}

// DefaultSecret is the PSK of identities that start with "cali.", as Californium's demo server has it.
const DefaultSecret = ".fornium"

// NewIdentity draws "cali." and 16 hex digits, an identity that Californium's demo server accepts.
func NewIdentity() string {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // never fails, by its contract
	return "cali." + strings.ToUpper(hex.EncodeToString(b[:]))
}

// complete fills defaults in.
func (s *Security) complete(host string) {
	if s.Credentials == nil && s.Identity == "" {
		s.Identity = NewIdentity()
	}
	if s.Identity != "" && len(s.Secret) == 0 {
		s.Secret = []byte(DefaultSecret)
	}
	if s.ServerName == "" {
		s.ServerName = host
	}
}

// Validate refuses what no handshake can be made of. Call it after the flags of a command are read.
func (s *Security) Validate() error {
	switch {
	case s.CIDLength < 0 || s.CIDLength > record.MaxCID:
		return fmt.Errorf("connection id length: %d is not between 0 and %d", s.CIDLength, record.MaxCID)
	case s.NoCID && s.CIDLength > 0:
		return errors.New("without connection ids there is no length of them")
	}
	c := *s
	c.complete("host")
	_, err := handshake.NewClient(c.handshake(nil))
	return err
}

// handshake is the configuration of one handshake, which receives with cid.
func (s *Security) handshake(cid []byte) handshake.ClientConfig {
	cfg := handshake.ClientConfig{
		ServerName: s.ServerName, OfferCID: !s.NoCID, OfferRoutability: !s.NoCID, CID: cid,
		RecordSizeLimit: s.RecordSizeLimit, MaxFragmentLength: s.MaxFragmentLength,
		Resumable: s.Resumable || s.Resume != nil, Session: s.Resume, Timeout: time.Second, Repetitions: 5,
	}
	cfg.Suites = slices.Clone(s.Suites)
	if s.Identity != "" {
		cfg.Identity, cfg.Key = []byte(s.Identity), s.Secret
	}
	if s.Credentials != nil {
		cfg.Credentials = new(atomic.Pointer[handshake.Credentials])
		cfg.Credentials.Store(s.Credentials)
	}
	return cfg
}
