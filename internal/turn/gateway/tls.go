package gateway

import (
	"crypto/tls"
	"slices"
	"time"
)

// alpnTURN is the ALPN protocol id of TURN (RFC 7443 §3).
const alpnTURN = "stun.turn"

// loadCertificate reads what the first handshakes show; a reload may show another, see listener.showCertificate.
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

// tlsConfig serves TLS 1.2 and 1.3. A client that offers ALPN gets TURN's id if it asks for it, and none otherwise: other
// ids are no reason to refuse it.
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
