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

// explain names the cause of a handshake's end.
func explain(err error, after time.Duration) error {
	var alert handshake.AlertError
	var untrusted handshake.UntrustedError
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("certificate not trusted: %w", untrusted.Err)
	case errors.Is(err, handshake.ErrNoAnswer):
		return fmt.Errorf("no answer within %v; is a DTLS server there? (%w)", after.Round(time.Millisecond), err)
	case errors.Is(err, handshake.ErrNoFinished):
		return fmt.Errorf("no answer within %v to the keys of this client: some servers refuse an identity, a key or a certificate in silence (%w)", after.Round(time.Millisecond), err)
	case errors.As(err, &alert):
		return fmt.Errorf("%s (%w)", alertCause(alert), err)
	}
	return err
}

// alertCause is what a server's fatal alert in a handshake means for the user (RFC 5246 section 7.2.2; RFC 4279 section 2).
func alertCause(alert handshake.AlertError) string {
	switch alert {
	case 20, 51, 115: // bad_record_mac, decrypt_error, unknown_psk_identity
		return "identity or key refused"
	case 40, 71: // handshake_failure, insufficient_security
		return "no cipher suite, group or certificate in common"
	case 41, 42, 43, 44, 45, 46, 48, 49, 116: // of certificates, unknown_ca, access_denied, certificate_required
		return "the server does not accept the certificate of this client"
	case 70: // protocol_version
		return "the server does not support DTLS 1.2"
	case 112: // unrecognized_name
		return "the server does not know the name it was called by"
	}
	return "refused by the server"
}
