package gateway

import "crypto/tls"

// shownCertificate is what the listener's next handshake shows, nil of none.
func (l *listener) shownCertificate() *tls.Certificate {
	if l.stream == nil {
		return nil
	}
	return l.stream.certificate.Load()
}

// showCertificate changes it; connections that are open go on.
func (l *listener) showCertificate(c *tls.Certificate) {
	if l.stream != nil {
		l.stream.certificate.Store(c)
	}
}

// limitStreams sets how many connections and handshakes there may be. Those that are open stay.
func (g *Gateway) limitStreams(limits LimitConfig) { g.streams.limit(limits) }
