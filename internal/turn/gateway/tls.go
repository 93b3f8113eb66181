package gateway

import (
	"crypto/tls"
	"slices"
	"time"
)

// alpnTURN is the ALPN protocol id of TURN (RFC 7443 §3).
const alpnTURN = "stun.turn"

// loadCertificate reads the certificate for the first handshakes. A reload may set another one, see
// listener.showCertificate.
func (s *streamServer) loadCertificate(config *ListenerConfig) error {
	certificate, err := config.certificate(time.Now())
	if err != nil {
		return err
	}
	s.certificate.Store(certificate)
	if config.Protocol == TLS {
		s.tls = s.tlsConfig()
	}
	return nil
}

// tlsConfig returns the configuration of TLS 1.2 and 1.3. If a client offers ALPN with TURN's id, the server selects
// it; otherwise it selects none. Other ids are no reason to refuse the client.
func (s *streamServer) tlsConfig() *tls.Config {
	plain := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Load(), nil },
	}
	named := plain.Clone()
	named.NextProtos = []string{alpnTURN}
	plain.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, alpnTURN) {
			return named, nil
		}
		return nil, nil // plain itself
	}
	return plain
}
