package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
)

const (
	// listenerBuffer is the buffer size in bytes that is requested from the kernel for each socket of a UDP listener.
	listenerBuffer = 8 << 20
	// relayBuffer is the same for a relay socket.
	relayBuffer = 1 << 20
)

// listenerIDs is how many listeners a process can open during its life.
const listenerIDs = 1 << 16

// clusterIDs is how many clusters a process can have during its life; id 0 means none.
const clusterIDs = 1 << 16

// listener is one configured listener. All workers share it.
type listener struct {
	id          uint16
	config      ListenerConfig                 // as it was opened; protocol, address and port never change
	reloaded    atomic.Pointer[ListenerConfig] // set by the last reload; nil: config
	transport   allocation.Transport
	server      netip.AddrPort // as bound
	group       *udpio.Group   // UDP, DTLS
	connections atomic.Int64   // of TCP, TLS and DTLS
	stream      *streamServer  // TCP, TLS, DTLS
	dtls        *dtlsListener  // DTLS
	counts      []counts       // by worker
}

// current returns the listener's configuration in force. Any goroutine may call it.
func (l *listener) current() *ListenerConfig {
	if c := l.reloaded.Load(); c != nil {
		return c
	}
	return &l.config
}

// openListenerLocked binds one listener and makes the workers read it. The caller holds g.mu.
func (g *Gateway) openListenerLocked(c ListenerConfig) (*listener, error) {
	if len(g.listeners) >= listenerIDs {
		return nil, fmt.Errorf("%d listeners were opened in this process already; restart it", listenerIDs)
	}
	l := &listener{
		id: uint16(len(g.listeners)), config: c, server: netip.AddrPortFrom(c.Address, c.Port),
		counts: make([]counts, len(g.workers)),
	}
	switch c.Protocol {
	case TCP:
		l.transport = allocation.TCP
	case TLS:
		l.transport = allocation.TLS
	case DTLS:
		l.transport = allocation.DTLS
	}
	open := g.openStream
	switch l.transport {
	case allocation.UDP:
		open = g.openUDPLocked
	case allocation.DTLS:
		open = g.openDTLSLocked
	}
	if err := open(l); err != nil {
		return nil, err
	}
	g.listeners = append(g.listeners, l)
	return l, nil
}

// closeListenerLocked closes a listener, ends its allocations and returns how many there were.
func (g *Gateway) closeListenerLocked(l *listener, why allocation.Reason) (ended int) {
	g.doLocked(func(w *worker) { ended += w.leave(l, why) })
	for i := range g.workers {
		if g.options.Store != nil && l.kept() {
			g.options.Store.Drop(listenerName(l.current().Name, i))
		}
	}
	l.close(g)
	g.listeners[l.id] = nil
	return ended
}

// kept reports whether a Store keeps the listener's sockets: those of UDP, whose clients outlive the process.
func (l *listener) kept() bool { return l.transport == allocation.UDP }

func (l *listener) close(g *Gateway) {
	if l.dtls != nil {
		for i, f := range l.dtls.fronts {
			g.runInLocked(g.workers[i], func(*worker) { f.close() })
		}
	}
	if l.group != nil {
		_ = l.group.Close()
		return
	}
	g.closeStream(l)
}

// openUDPLocked binds the sockets of a UDP listener, one for each worker, or takes stored ones.
func (g *Gateway) openUDPLocked(l *listener) error {
	config := udpio.Config{
		Addr: l.server, Sockets: len(g.workers), Batch: readBatch, ReadBuffer: listenerBuffer,
		WriteBuffer: listenerBuffer, Coalesce: !g.options.NoCoalesce,
	}
	if len(g.workers) > 1 {
		config.Steer = &udpio.Steering{ByPeer: true}
	}
	group, err := g.adoptUDP(l, config)
	if err != nil {
		return err
	}
	if group == nil {
		if group, err = udpio.Listen(config); err != nil {
			return explainBind(err, l.server)
		}
		g.holdUDP(l, group)
	}
	l.group, l.server = group, group.LocalAddr()
	return g.enterLocked(l)
}

// enterLocked makes every worker read its socket of a listener. If one cannot, it closes the sockets.
func (g *Gateway) enterLocked(l *listener) error {
	var failed error
	g.doLocked(func(w *worker) {
		if failed == nil {
			failed = w.enter(l)
		}
	})
	if failed != nil {
		g.doLocked(func(w *worker) { w.leave(l, allocation.Stopped) })
		_ = l.group.Close()
	}
	return failed
}

func explainBind(err error, at netip.AddrPort) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%w: another process has %v; ss -ulpn names it", err, at)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: this host has no address %v", err, at.Addr())
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: ports below net.ipv4.ip_unprivileged_port_start need CAP_NET_BIND_SERVICE", err)
	}
	return err
}

func listenerName(name string, worker int) string {
	return "listener/" + name + "/" + strconv.Itoa(worker)
}

// adoptUDP makes the group of stored sockets. It returns nil if there are none, or if they do not match what is
// needed.
func (g *Gateway) adoptUDP(l *listener, config udpio.Config) (*udpio.Group, error) {
	if g.options.Store == nil {
		return nil, nil
	}
	var fds []int
	for i := range g.workers {
		fd, ok := g.options.Store.Take(listenerName(l.config.Name, i))
		if !ok {
			break
		}
		fds = append(fds, fd)
	}
	group, err := (*udpio.Group)(nil), error(nil)
	if len(fds) == len(g.workers) {
		group, err = udpio.AdoptGroup(config, fds)
		if err == nil && group.LocalAddr() == l.server {
			return group, nil
		}
	}
	if len(fds) > 0 {
		g.options.Log.Warn("kept sockets do not fit, opening new ones", "listener", l.config.Name, "sockets", len(fds), "error", err)
	}
	if group != nil {
		_ = group.Close()
	} else {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
	for i := range max(len(fds), len(g.workers)) {
		g.options.Store.Drop(listenerName(l.config.Name, i))
	}
	return nil, nil
}

// holdListenersLocked stores the sockets of all listeners again. After a reload, a name that one listener gave up may
// belong to another one, so the socket stored under it may be wrong.
func (g *Gateway) holdListenersLocked() {
	for _, l := range g.listeners {
		if l != nil && l.kept() {
			g.holdUDP(l, l.group)
		}
	}
}

func (g *Gateway) holdUDP(l *listener, group *udpio.Group) {
	if g.options.Store == nil {
		return
	}
	for i := range group.Len() {
		if err := g.options.Store.Hold(listenerName(l.current().Name, i), group.Conn(i).FD()); err != nil {
			g.options.Log.Warn("the socket will not outlive this process", "listener", l.config.Name, "error", err)
		}
	}
}
