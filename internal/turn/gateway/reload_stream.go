package gateway

import "crypto/tls"

// shownCertificate returns the certificate for the listener's next handshake, nil if it has none.
func (l *listener) shownCertificate() *tls.Certificate {
	if l.stream == nil {
		return nil
	}
	return l.stream.certificate.Load()
}

// showCertificate sets the certificate for the next handshakes; open connections continue.
func (l *listener) showCertificate(c *tls.Certificate) {
	if l.dtls != nil {
		if err := l.dtls.show(c); err != nil {
			l.dtls.server.gateway.options.Log.Error("the certificate stays as it is", "listener", l.current().Name, "error", err)
			return
		}
	}
	if l.stream != nil {
		l.stream.certificate.Store(c)
	}
}

// limitStreams sets the maximum numbers of connections and handshakes. Open ones stay.
func (g *Gateway) limitStreams(limits LimitConfig) { g.streams.limit(limits) }
