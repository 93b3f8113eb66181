package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

const (
	// handshakeTime is how long a client may take for its TLS or DTLS handshake. guestTime is how long it may then stay without
	// an allocation, whatever it sends, so that slow requests do not keep a connection open.
	handshakeTime = 10 * time.Second
	guestTime     = 30 * time.Second
	// A client that disappeared without closing is detected by keepalive after 30 s + 3 times 10 s, or by data that it does not
	// acknowledge.
	keepaliveIdle, keepaliveEvery, keepaliveProbes = 30 * time.Second, 10 * time.Second, 3
	unackedTime                                    = 30 * time.Second
)

// streams is the state that all TCP, TLS and DTLS listeners of a gateway share.
type streams struct {
	chunks chunkPool
	blocks blockPool

	connections *sourceLimit // all connections
	handshakes  *sourceLimit // TLS and DTLS handshakes in progress
	guests      *sourceLimit // connections whose client has no allocation
	data        dataConnections
}

func newStreams(limits LimitConfig) *streams {
	s := &streams{connections: newSourceLimit(0, 0), handshakes: newSourceLimit(0, 0), guests: newSourceLimit(0, 0)}
	s.limit(limits)
	return s
}

// limit sets the limits. One prefix may have at most a quarter of each, because there may be many clients behind one
// NAT.
func (s *streams) limit(limits LimitConfig) {
	s.connections.resize(limits.Connections, share(limits.Connections, 4))
	s.handshakes.resize(limits.Handshakes, share(limits.Handshakes, 4))
	s.guests.resize(share(limits.Connections, 4), share(limits.Connections, 16))
}

// share returns an n-th of a limit, at least 1.
func share(bound, n int) int { return max(bound/n, 1) }

// streamServer serves the clients of one TCP or TLS listener. Of a DTLS listener it has the counters only.
type streamServer struct {
	gateway  *Gateway
	shared   *streams
	listener *listener
	counts   streamCounts

	certificate atomic.Pointer[tls.Certificate] // TLS and DTLS: the certificate for the next handshakes, for DTLS to compare with
	tls         *tls.Config                     // TLS

	tcp io.Closer // TCP and TLS: the listening socket

	mu     sync.Mutex
	conns  map[any]struct{} // *streamConn and *polledConn
	closed bool
	wait   sync.WaitGroup // accept loop and connections
}

// openStream binds a TCP or TLS listener and serves it until closeStream.
func (g *Gateway) openStream(l *listener) error {
	s := &streamServer{gateway: g, shared: g.streams, listener: l, conns: make(map[any]struct{})}
	if l.config.Protocol.Secure() {
		if err := s.loadCertificate(&l.config); err != nil {
			return err
		}
	}
	if err := s.listenTCP(); err != nil {
		return err
	}
	l.stream = s
	return nil
}

// closeStream stops accepting and ends every connection of the listener. The caller holds g.mu.
func (g *Gateway) closeStream(l *listener) {
	s := l.stream
	if s == nil {
		return
	}
	if s.tcp != nil {
		_ = s.tcp.Close()
	}
	s.mu.Lock()
	s.closed = true
	polled := make(map[*worker][]*polledConn)
	var others []*streamConn
	for c := range s.conns {
		switch c := c.(type) {
		case *polledConn:
			polled[c.worker] = append(polled[c.worker], c)
		case *streamConn:
			others = append(others, c)
		}
	}
	s.mu.Unlock()
	for _, c := range others {
		c.end(connectionShut)
	}
	for w, conns := range polled {
		g.runInLocked(w, func(w *worker) {
			for _, c := range conns {
				c.end(connectionShut)
			}
			w.closeEnded()
		})
	}
	s.wait.Wait()
}

// listenTCP binds exactly the address: :: accepts IPv4 too, 0.0.0.0 does not accept IPv6.
func (s *streamServer) listenTCP() error {
	address := netip.AddrPortFrom(s.listener.config.Address, s.listener.config.Port)
	network := "tcp"
	if address.Addr().Is4() {
		network = "tcp4"
	}
	config := net.ListenConfig{KeepAliveConfig: keepalive()}
	config.SetMultipathTCP(false) // its sockets have no TCP_USER_TIMEOUT
	bound, err := config.Listen(context.Background(), network, address.String())
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	listener := bound.(*net.TCPListener)
	s.listener.server = listener.Addr().(*net.TCPAddr).AddrPort()
	if s.listener.config.Protocol == TCP {
		if err := s.listenPolled(listener); err != nil {
			return fmt.Errorf("listen on %s: %w", address, err)
		}
		return nil
	}
	s.tcp = listener
	s.wait.Add(1)
	go s.acceptTLS(listener)
	return nil
}

// acceptTLS takes connections until the listener is closed.
func (s *streamServer) acceptTLS(listener *net.TCPListener) {
	defer s.wait.Done()
	for {
		conn, err := listener.AcceptTCP()
		switch {
		case err == nil:
			s.begin(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			s.pauseAccept(err)
		}
	}
}

// pauseAccept waits if the process is out of descriptors or memory. Further connections stay in the kernel's backlog.
func (s *streamServer) pauseAccept(err error) {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS) {
		s.gateway.options.Log.Warn("accept a connection", "listener", s.listener.current().Name, "err", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// begin enters an accepted TLS connection into the limit of connections and starts its goroutines.
func (s *streamServer) begin(conn *net.TCPConn) {
	s.counts.add(connectionAccepted)
	c := s.newConn(unmapPort(conn.RemoteAddr()), unmapPort(conn.LocalAddr()))
	c.raw, c.conn = conn, conn
	if !s.shared.connections.enter(c.connEntry, c.path.Client.Addr(), nil) {
		s.counts.add(connectionRefused)
		abort(conn)
		return
	}
	if !s.add(c) {
		s.shared.connections.leave(c.connEntry)
		abort(conn)
		return
	}
	setUserTimeout(conn)
	go c.serveTLS()
}

// newConn prepares the state of a connection that is not in s.conns yet.
func (s *streamServer) newConn(client, server netip.AddrPort) *streamConn {
	c := &streamConn{
		server: s, out: newOutQueue(&s.shared.blocks), slots: make(chan struct{}, chunksAhead), ending: make(chan struct{}),
		connEntry: new(limitEntry), phaseEntry: new(limitEntry),
		path: allocation.Path{Client: client, Server: server, Transport: s.listener.transport, Listener: s.listener.id},
	}
	c.worker = s.gateway.workerFor(client)
	c.frames.pool = &s.shared.chunks
	c.frames.limit.Store(maxYoungFrame)
	return c
}

// add records the connection for closeStream. It returns false if the listener is closing.
func (s *streamServer) add(c any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = struct{}{}
	s.wait.Add(1)
	s.listener.connections.Add(1)
	return true
}

// remove is the last call of a connection.
func (s *streamServer) remove(c any, entry *limitEntry) {
	s.shared.connections.leave(entry)
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.listener.connections.Add(-1)
	s.wait.Done()
}

// abort resets a refused connection, so that no TIME_WAIT state remains.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// setUserTimeout makes the kernel detect a client that disappeared while data to it is queued (tcp(7)). After an
// error, the kernel's 15 minutes apply.
func setUserTimeout(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedTime.Milliseconds()))
	})
}

func unmapPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
	case *net.UDPAddr:
		return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}
