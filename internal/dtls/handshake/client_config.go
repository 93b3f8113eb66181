package handshake

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// ClientConfig is what a Client needs: Identity and Key, or Credentials that trust the server, or both.
type ClientConfig struct {
	Config
	Identity []byte // of the pre-shared key
	Key      []byte // nil: no suites with pre-shared keys are offered
	// ServerName is the name that the server's certificate must be valid for, and that is sent to it (RFC 6066 section 3). An
	// address is not sent. Empty: any name, and none is sent.
	ServerName string
	// OfferCID offers connection ids; CID is ours, and may be empty: then the
	// server gets one from us in no record, and we send what it gives out.
	OfferCID bool
	CID      []byte
	// OfferRoutability offers the return routability check with the connection id; who sets it answers challenges.
	OfferRoutability bool
	// RecordSizeLimit is the maximum length in bytes of what the server encrypts in one record (RFC 8449), 64 to 16384;
	// 0: not offered.
	RecordSizeLimit int
	// MaxFragmentLength requests records of at most 512, 1024, 2048 or 4096 bytes (RFC 6066 section 4), handshake
	// included; 0: not offered. It binds both sides.
	MaxFragmentLength int
	// Resumable requests what Result.Session needs. Session, of an earlier Result for the same server and
	// ServerName, is resumed if the server still knows it.
	Resumable bool
	Session   *Session
	// Timeout of the first flight, doubled with every repetition; default 1 s.
	Timeout time.Duration
	// Repetitions of a flight before the handshake fails; default 6.
	Repetitions int
}

func (c *ClientConfig) defaults() error {
	if len(c.CID) > record.MaxCID {
		return fmt.Errorf("handshake: connection id longer than %d bytes", record.MaxCID)
	}
	if len(c.Identity) > maxIdentity {
		return fmt.Errorf("handshake: identity longer than %d bytes", maxIdentity)
	}
	if len(c.ServerName) > maxServerName {
		return fmt.Errorf("handshake: server name longer than %d bytes", maxServerName)
	}
	if n := c.RecordSizeLimit; n != 0 && (n < minRecordLimit || n > record.MaxPlaintext) {
		return fmt.Errorf("handshake: record size limit of %d bytes: want %d to %d", n, minRecordLimit, record.MaxPlaintext)
	}
	if c.MaxFragmentLength != 0 && fragmentCode(c.MaxFragmentLength) == 0 {
		return fmt.Errorf("handshake: maximum fragment length %d: want 512, 1024, 2048 or 4096", c.MaxFragmentLength)
	}
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	if c.Repetitions == 0 {
		c.Repetitions = 6
	}
	if err := c.Config.defaults(); err != nil {
		return err
	}
	types := c.credentials().types()
	c.Suites = slices.DeleteFunc(slices.Clone(c.Suites), func(s record.Suite) bool {
		if s.KeyExchange() == record.ECDHEECDSA {
			return len(types) == 0
		}
		return c.Key == nil
	})
	if len(c.Suites) == 0 {
		return errors.New("handshake: no suite is left: neither a pre-shared key nor trust in a certificate")
	}
	return nil
}

// fragmentCode returns what stands for a maximum fragment length, or 0.
func fragmentCode(n int) byte {
	for code := byte(1); code <= 4; code++ {
		if n == 1<<(8+code) {
			return code
		}
	}
	return 0
}
