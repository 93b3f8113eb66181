package admin

import (
	"net"
	"sync"
)

// limited is a listener with at most so many open connections; one more is closed at once.
type limited struct {
	net.Listener
	slots chan struct{}
}

func newLimited(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, most)}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &counted{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			conn.Close()
		}
	}
}

type counted struct {
	net.Conn
	free func()
}

func (c *counted) Close() error {
	c.free()
	return c.Conn.Close()
}
