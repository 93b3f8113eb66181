package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// serverTLS is the configuration of a TLS server that follows current, which is called for each handshake. auth is as over DTLS.
func serverTLS(current func() *handshake.Credentials, auth handshake.ClientAuth) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := current()
			for _, own := range c.Certificates {
				if certificate, ok := own.TLS(); ok {
					return &tls.Config{
						MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"coap"},
						ClientCAs: clientRoots(c), ClientAuth: clientAuth(c, auth),
						SessionTicketsDisabled: true, // with a certificate that a reload no longer trusts, a ticket would still open
					}, nil
				}
			}
			return nil, errors.New("there is no certificate")
		},
	}
}

// clientRoots never returns nil, which would stand for the roots of the system.
func clientRoots(c *handshake.Credentials) *x509.CertPool {
	if c.Roots == nil {
		return x509.NewCertPool()
	}
	return c.Roots
}

func clientAuth(c *handshake.Credentials, auth handshake.ClientAuth) tls.ClientAuthType {
	switch {
	case auth == handshake.ClientAuthNone:
		return tls.NoClientCert
	case auth == handshake.ClientAuthWanted && c.TrustAll:
		return tls.RequestClientCert
	case auth == handshake.ClientAuthWanted:
		return tls.VerifyClientCertIfGiven
	case c.TrustAll:
		return tls.RequireAnyClientCert
	}
	return tls.RequireAndVerifyClientCert
}
