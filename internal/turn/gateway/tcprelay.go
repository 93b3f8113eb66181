package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

const (
	// connectTime is how long a peer may take to accept a connection; the table allows at most 30 s.
	connectTime = 25 * time.Second
	// attemptsAhead is how many connections of peers to one relay address may be queued until the worker admits them.
	attemptsAhead = 16
)

// tcpRelay is the RFC 6062 part of an allocation: a relay address that peers connect to, and from which the client's
// Connect requests open connections to peers. Its fields belong to the worker.
//
//	peer ─► accept ─► Table.ConnectionAttempt ─► indication ─► client ─┐
//	client ─ Connect ─► dial ─► Table.ConnectDone ─► answer with id ───┴─► ConnectionBind on a new connection: dataConn
type tcpRelay struct {
	worker    *worker
	client    *client
	addr      [2]netip.AddrPort // as bound
	listeners [2]*net.TCPListener
	attempts  chan struct{}
	conns     map[uint32]*dataConn
	pace      pacer
	closed    bool
	context   context.Context // context of connection attempts in progress
	cancel    context.CancelFunc
}

// openTCP implements Relays.Open for an allocation that relays TCP. Such an allocation cannot be restored, because
// its client's connection is gone.
func (w *worker) openTCP(c *client, want allocation.RelayRequest) (got [2]netip.AddrPort, err error) {
	if c.a.Path.Transport != allocation.TCP && c.a.Path.Transport != allocation.TLS || want.Exact[0].IsValid() || want.Exact[1].IsValid() {
		return got, allocation.ErrTransport
	}
	r := &tcpRelay{worker: w, client: c, attempts: make(chan struct{}, attemptsAhead), conns: make(map[uint32]*dataConn)}
	r.context, r.cancel = context.WithCancel(context.Background())
	for family, wanted := range [2]bool{want.V4, want.V6} {
		if !wanted {
			continue
		}
		listener, addr, failed := listenRelay(c, family)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		r.listeners[family], r.addr[family], got[family] = listener, addr, addr
		go r.accept(listener)
	}
	if r.listeners == [2]*net.TCPListener{} {
		r.cancel()
		return got, err
	}
	c.tcp = r
	return got, err
}

// listenRelay binds a port of the listener's range on which no other allocation and no other program listens. Only
// afterwards it lets connections to peers share the port.
func listenRelay(c *client, family int) (*net.TCPListener, netip.AddrPort, error) {
	addr, err := relayAddress(c, family)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	network := [2]string{"tcp4", "tcp6"}[family]
	config := net.ListenConfig{KeepAliveConfig: keepalive()}
	ports := c.listener.current().RelayPorts
	at := rand.IntN(ports.Count())
	for range min(ports.Count(), bindTries) {
		relay := netip.AddrPortFrom(addr, ports.Min+uint16(at))
		at = (at + 1) % ports.Count()
		var bound net.Listener
		if bound, err = config.Listen(context.Background(), network, relay.String()); err == nil {
			listener := bound.(*net.TCPListener)
			if err = sharePort(listener); err != nil {
				_ = listener.Close()
				break
			}
			return listener, relay, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return nil, netip.AddrPort{}, fmt.Errorf("%w: %w", allocation.ErrNoPort, err)
}

func keepalive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: keepaliveIdle, Interval: keepaliveEvery, Count: keepaliveProbes}
}

// sharePort lets sockets with SO_REUSEPORT bind the address of a listening socket. Before the bind, this option would
// let another allocation listen there too.
func sharePort(conn syscall.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	if failed := raw.Control(func(fd uintptr) { err = reusePort(fd) }); failed != nil {
		return failed
	}
	return err
}

func reusePort(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
}

// accept accepts the connections of peers until the relay is closed. The worker decides about each.
func (r *tcpRelay) accept(listener *net.TCPListener) {
	for {
		conn, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors; the worker's limits are lower, so another part of the host uses them
			select {
			case <-time.After(100 * time.Millisecond):
			case <-r.context.Done():
				return
			}
			continue
		}
		select {
		case r.attempts <- struct{}{}:
		case <-r.context.Done():
			abort(conn)
			return
		}
		r.worker.post(func(w *worker) {
			<-r.attempts
			r.attempt(w, conn)
		})
	}
}

// attempt queries the table whether the peer may connect, and notifies the client.
func (r *tcpRelay) attempt(w *worker, conn *net.TCPConn) {
	if r.closed {
		abort(conn)
		return
	}
	peer := unmapPort(conn.RemoteAddr())
	id, indication, reason := w.table.ConnectionAttempt(r.client.a, peer, nil, w.now)
	if reason != allocation.OK {
		r.client.counts.add(reason, 1)
		abort(conn)
		return
	}
	r.register(w, id, peer, conn)
	w.deliver(r.client, indication, nil)
}

// register stores a connection to a peer under its id until a client binds it or it ends.
func (r *tcpRelay) register(w *worker, id uint32, peer netip.AddrPort, conn *net.TCPConn) {
	setUserTimeout(conn)
	d := &dataConn{relay: r, id: id, peer: conn, counts: w.cluster(r.client.a.Cluster(peer)), done: make(chan struct{})}
	r.conns[id] = d
	w.gateway.streams.data.add(d)
}

// connectTCP implements Relays.Connect.
func (w *worker) connectTCP(c *client, id uint32, peer netip.AddrPort) {
	r := c.tcp
	family := allocation.V6
	if peer.Addr().Is4() {
		family = allocation.V4
	}
	local := r.addr[family]
	go func() {
		conn, err := dialFrom(r.context, local, peer)
		w.post(func(w *worker) { r.connected(w, id, peer, conn, err) })
	}()
}

// dialFrom connects to a peer from the relay address.
func dialFrom(parent context.Context, local, peer netip.AddrPort) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(parent, connectTime)
	defer cancel()
	dialer := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(local), KeepAliveConfig: keepalive(),
		Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			failed := raw.Control(func(fd uintptr) {
				if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
					err = reusePort(fd)
				}
			})
			return errors.Join(failed, err)
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", peer.String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// connected answers the client's Connect request.
func (r *tcpRelay) connected(w *worker, id uint32, peer netip.AddrPort, conn *net.TCPConn, err error) {
	var answer []byte
	if !r.closed {
		answer = w.table.ConnectDone(r.client.a, id, err, nil, w.now)
	}
	switch {
	case err != nil:
		if !r.closed {
			r.client.counts.add(allocation.ConnectionFailed, 1)
		}
	case len(answer) == 0:
		abort(conn)
	default:
		r.register(w, id, peer, conn)
	}
	if len(answer) > 0 {
		w.deliver(r.client, answer, nil)
	}
}

// disconnectTCP implements Relays.Disconnect.
func (w *worker) disconnectTCP(c *client, id uint32) {
	if d := c.tcp.conns[id]; d != nil {
		delete(c.tcp.conns, id)
		d.close()
	}
}

// closeFamily closes the relay address of one family. Its connections were disconnected before.
func (r *tcpRelay) closeFamily(family int) {
	if listener := r.listeners[family]; listener != nil {
		_ = listener.Close()
		r.listeners[family], r.addr[family] = nil, netip.AddrPort{}
	}
}

// closeTCP implements Relays.Close: the relay address and every connection through it end with the allocation (RFC
// 6062 §5.1).
func (w *worker) closeTCP(c *client) {
	r := c.tcp
	r.closed = true
	r.cancel()
	for _, listener := range r.listeners {
		if listener != nil {
			_ = listener.Close()
		}
	}
	for _, d := range r.conns {
		d.close()
	}
	clear(r.conns)
}
