package gateway

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/pion/dtls/v3"
	"github.com/pion/logging"

	"github.com/weir-lb/weir/internal/udpio"
)

const (
	dtlsBatch    = 64
	dtlsDatagram = 4096 // longer datagrams are truncated and then fail to decrypt; media and requests are shorter
	dtlsMTU      = 1200 // of handshake datagrams
)

// dtlsFront is the sockets of a DTLS listener. It answers ClientHellos without a cookie and stores nothing for them.
// A client that returns the cookie gets a session: a pipe and a pion/dtls connection over it. A session ends when its
// client starts a new handshake from the same address; the library alone would ignore that.
//
//	reuse-port socket ─► reader ─┬─ hello, no cookie ─► HelloVerifyRequest, no state
//	                             ├─ hello, cookie ────► new session ─► pion/dtls ─► streamConn
//	                             └─ other record ─────► the session of the address, else dropped
type dtlsFront struct {
	server  *streamServer
	group   *udpio.Group
	cookies cookieMaker
	readers []*dtlsReader
	wait    sync.WaitGroup
	options []dtls.ServerOption
}

// sessionKey identifies the session of a datagram. local is valid on wildcard sockets only.
type sessionKey struct {
	client netip.AddrPort
	local  netip.Addr
}

// dtlsReader is one socket with the sessions whose datagrams the kernel's hash steers to it.
type dtlsReader struct {
	front *dtlsFront
	conn  *udpio.Conn

	mu       sync.Mutex
	sessions map[sessionKey]*dtlsSession
}

// dtlsSession is the session of a client that returned a valid cookie.
type dtlsSession struct {
	pipe *dtlsPipe
	conn *streamConn
	gone chan struct{} // closed after its end was posted to the worker
}

// listenDTLS opens the sockets, one per worker, and their readers.
func (s *streamServer) listenDTLS() error {
	config := &s.listener.config
	address := netip.AddrPortFrom(config.Address, config.Port)
	group, err := udpio.Listen(udpio.Config{
		Addr: address, Sockets: max(len(s.gateway.workers), 1), Batch: dtlsBatch, ReadBuffer: 4 << 20, WriteBuffer: 4 << 20,
	})
	if err != nil {
		return err
	}
	f := &dtlsFront{server: s, group: group}
	if _, err := rand.Read(f.cookies.key[:]); err != nil {
		_ = group.Close()
		return fmt.Errorf("make a cookie key: %w", err)
	}
	f.options = []dtls.ServerOption{
		dtls.WithGetCertificate(func(*dtls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Load(), nil }),
		dtls.WithMTU(dtlsMTU), dtls.WithLoggerFactory(silence{logging.NewDefaultLeveledLoggerForScope("dtls", logging.LogLevelDisabled, nil)}),
	}
	s.listener.server = group.LocalAddr()
	s.dtls = f
	for i := range group.Len() {
		r := &dtlsReader{front: f, conn: group.Conn(i), sessions: make(map[sessionKey]*dtlsSession)}
		f.readers = append(f.readers, r)
		f.wait.Add(1)
		go r.run()
	}
	return nil
}

// stop accepts no new sessions. close frees the sockets after all sessions have ended.
func (f *dtlsFront) stop() {
	for _, r := range f.readers {
		r.mu.Lock()
		clear(r.sessions)
		r.sessions = nil // from here on datagrams find no session, and none is created
		r.mu.Unlock()
	}
}

func (f *dtlsFront) close() {
	_ = f.group.Close()
	f.wait.Wait()
}

// run reads until the socket is closed.
func (r *dtlsReader) run() {
	defer r.front.wait.Done()
	messages := udpio.NewMessages(dtlsBatch, dtlsDatagram)
	for {
		n, err := r.conn.ReadBatch(messages, udpio.Forever)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		now := r.front.server.gateway.options.Now()
		for i := range n {
			r.datagram(&messages[i], now)
		}
	}
}

// datagram passes a datagram to its session, or begins a session.
func (r *dtlsReader) datagram(m *udpio.Message, now int64) {
	b, key, counts := m.Buf[:m.N], sessionKey{m.Addr, m.Local}, &r.front.server.counts
	if len(b) < recordHeader || b[1] != 0xFE {
		counts.add(dtlsMalformed)
		return
	}
	r.mu.Lock()
	session := r.sessions[key]
	r.mu.Unlock()
	if isHandshakeStart(b) {
		h, ok := parseHello(b)
		switch {
		case !ok:
			counts.add(dtlsMalformed)
			return
		case session != nil && string(h.cookie) == string(session.pipe.cookie[:]):
			// a retransmission of this session's hello: the library answers again
		case r.front.cookies.valid(m.Addr, &h, now):
			r.begin(key, &h, session)
			return
		default:
			if len(h.cookie) > 0 {
				counts.add(dtlsBadCookie)
			}
			counts.add(dtlsCookieSent)
			cookie := r.front.cookies.make(m.Addr, &h, cookiePeriodOf(now))
			r.send(key, h.appendHelloVerify(make([]byte, 0, helloVerifySize), cookie[:]))
			return
		}
	}
	if session == nil {
		counts.add(dtlsMalformed)
	} else if !session.pipe.put(b) {
		counts.add(dtlsInboxFull)
	}
}

// begin creates the session of a client with a valid cookie. It replaces an earlier session of the same address.
func (r *dtlsReader) begin(key sessionKey, h *dtlsHello, old *dtlsSession) {
	s := r.front.server
	s.counts.add(connectionAccepted)
	if old != nil {
		old.pipe.mute()
		old.conn.end(dtlsReplaced)
	}
	local := s.listener.server
	if key.local.IsValid() {
		local = netip.AddrPortFrom(key.local, local.Port())
	}
	c := s.newConn(key.client, local)
	pipe := newDTLSPipe(r, key, h)
	c.raw = pipe
	if !s.shared.connections.enter(c.connEntry, key.client.Addr(), nil) {
		s.counts.add(connectionRefused)
		return
	}
	if !s.shared.handshakes.enter(c.phaseEntry, key.client.Addr(), func() { c.end(handshakeEvicted) }) {
		s.shared.connections.leave(c.connEntry)
		s.counts.add(handshakeRefused)
		return
	}
	session := &dtlsSession{pipe: pipe, conn: c, gone: make(chan struct{})}
	conn, err := dtls.ServerWithOptions(pipe, net.UDPAddrFromAddrPort(key.client), r.front.options...)
	if err != nil || !r.register(key, session) {
		s.shared.handshakes.leave(c.phaseEntry)
		s.shared.connections.leave(c.connEntry)
		s.counts.add(handshakeFailed)
		return
	}
	pipe.conn = conn
	go session.serve(conn, key, old)
}

// register adds the session to the table, so that datagrams find it. It returns false if the listener is closing.
func (r *dtlsReader) register(key sessionKey, session *dtlsSession) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil || !r.front.server.add(session.conn) {
		return false
	}
	r.sessions[key] = session
	return true
}

// serve runs a session. It posts nothing to the worker before the end of the session that it replaces was posted,
// because both have the same 5-tuple.
func (d *dtlsSession) serve(conn *dtls.Conn, key sessionKey, old *dtlsSession) {
	c := d.conn
	defer c.server.remove(c, c.connEntry)
	defer close(d.gone)
	defer d.forget(key)
	defer conn.Close() //nolint:errcheck // sends close_notify to a client that may be gone
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	err := conn.HandshakeContext(ctx)
	cancel()
	c.server.shared.handshakes.leave(c.phaseEntry)
	if old != nil {
		<-old.gone
	}
	if err != nil {
		c.end(handshakeReason(err))
		return
	}
	c.conn = conn
	c.serve()
}

func (d *dtlsSession) forget(key sessionKey) {
	r := d.pipe.front
	r.mu.Lock()
	if r.sessions[key] == d {
		delete(r.sessions, key)
	}
	r.mu.Unlock()
}

// readRecords passes one message per record to the worker, and several at once if the worker is behind.
func (c *streamConn) readRecords() streamReason {
	buf := make([]byte, chunkBytes)
	var in recordInbox
	for {
		n, err := c.conn.Read(buf)
		if err != nil {
			return readReason(err)
		}
		message := buf[:n]
		if size, ok := frameSize(message); !ok || size == 0 {
			return streamNotTurn
		}
		if int64(n) > c.frames.limit.Load() {
			return streamLongFrame
		}
		if !in.put(c, message) {
			c.server.counts.add(dtlsInboxFull)
		}
	}
}

// recordInbox collects the messages of a session until the worker has taken the earlier ones.
type recordInbox struct {
	mu    sync.Mutex
	chunk *chunk
	used  int
}

// put copies a message. It returns false if the inbox is full.
func (in *recordInbox) put(c *streamConn, message []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	first := in.chunk == nil
	if first {
		in.chunk, in.used = c.frames.pool.get(chunkBytes), 0
	}
	if in.used+len(message) > len(in.chunk.buf) {
		return false
	}
	to := in.chunk.buf[in.used : in.used+len(message) : in.used+len(message)]
	copy(to, message)
	in.used += len(message)
	in.chunk.frames = append(in.chunk.frames, to)
	if first {
		c.worker.post(func(w *worker) { in.give(w, c) })
	}
	return true
}

func (in *recordInbox) give(w *worker, c *streamConn) {
	in.mu.Lock()
	chunk := in.chunk
	in.chunk = nil
	in.mu.Unlock()
	w.fromStream(c, c.server.listener, c.path, chunk.frames)
	c.frames.pool.put(chunk)
}

// silence discards the log of pion/dtls; all connections share it. Failed handshakes are counted; logging them would
// let unknown clients fill the log.
type silence struct{ logger logging.LeveledLogger }

// NewLogger implements logging.LoggerFactory.
func (s silence) NewLogger(string) logging.LeveledLogger { return s.logger }
