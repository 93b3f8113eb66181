package gateway

import "errors"

// openStream binds a TCP, TLS or DTLS listener and serves it until closeStream.
func (g *Gateway) openStream(l *listener) error { return errors.ErrUnsupported }

// closeStream stops accepting and ends every connection of the listener.
func (g *Gateway) closeStream(l *listener) {}
