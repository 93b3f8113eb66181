package coap

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/dtls/credentials"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// securityFlags are the flags of every client: its identity, the servers it trusts, and its parameters of DTLS.
type securityFlags struct {
	identity, secret, secretHex string
	files                       credentials.Files
	ciphers                     []string
	serverName                  string
	cidLength                   int
	noCID                       bool
}

func (f *securityFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.identity, "identity", "", "PSK identity (default cali. and 16 random hex digits)")
	flags.StringVar(&f.secret, "secret", client.DefaultSecret, "PSK as text")
	flags.StringVar(&f.secretHex, "secret-hex", "", "PSK in hex, instead of --secret")
	flags.StringVar(&f.files.Chain, "cert", "", "PEM file with this client's certificate, and those that sign it behind")
	flags.StringVar(&f.files.Key, "cert-key", "", "PEM file with its private key (default in the file of --cert)")
	flags.StringVar(&f.files.RawKey, "rpk", "", "PEM file with a private key whose raw public key proves this client, instead of a certificate")
	flags.StringArrayVar(&f.files.Trust, "trust", nil, "PEM file with certificates that sign servers' ones, or with servers' raw public keys; may be repeated")
	flags.BoolVar(&f.files.TrustAll, "trust-all", false, "trust every certificate and raw public key: whoever is in between can read and change everything")
	flags.StringVar(&f.serverName, "server-name", "", "name that the server's certificate must be valid for (default the host of the URI)")
	flags.StringSliceVar(&f.ciphers, "cipher", nil, "cipher suites by IANA name, in order of preference (default all that the credentials allow)")
	flags.IntVar(&f.cidLength, "cid-length", 0, "bytes of this client's own connection id")
	flags.BoolVar(&f.noCID, "no-cid", false, "do not offer a connection id")
}

// security is what the flags say.
func (f *securityFlags) security() (client.Security, error) {
	s := client.Security{Identity: f.identity, ServerName: f.serverName, CIDLength: f.cidLength, NoCID: f.noCID}
	var err error
	if s.Secret, err = pskSecret(f.secret, f.secretHex); err != nil {
		return s, err
	}
	if f.cidLength < 0 || f.cidLength > record.MaxCID {
		return s, fmt.Errorf("--cid-length: %d is not between 0 and %d", f.cidLength, record.MaxCID)
	}
	for _, name := range f.ciphers {
		suite, ok := record.SuiteNamed(name)
		if !ok {
			return s, fmt.Errorf("--cipher: %q is no cipher suite of DTLS 1.2 that Weir knows; write an IANA name such as %s", name, record.PSKWithAES128CCM8)
		}
		s.Suites = append(s.Suites, suite)
	}
	if f.files.Given() {
		if (f.files.Chain != "" || f.files.RawKey != "") && len(f.files.Trust) == 0 && !f.files.TrustAll {
			return s, fmt.Errorf("a server to trust is missing; give --trust FILE with the certificate or raw public key to trust, or --trust-all for tests")
		}
		if s.Credentials, err = f.files.Load(time.Now()); err != nil {
			return s, err
		}
	}
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("%w; look at --cipher, --identity, --cert and --trust", err)
	}
	return s, nil
}

// pskSecret reads a secret given as text or as hex.
func pskSecret(text, inHex string) ([]byte, error) {
	if inHex == "" {
		return []byte(text), nil
	}
	secret, err := hex.DecodeString(inHex)
	if err != nil {
		return nil, fmt.Errorf("--secret-hex: %w; write an even number of digits 0-9 a-f", err)
	}
	return secret, nil
}
