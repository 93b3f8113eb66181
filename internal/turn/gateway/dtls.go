package gateway

import (
	"crypto"
	"crypto/tls"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/udpio"
)

const (
	// dtlsMTU is the maximum size of the datagrams of a handshake, in bytes of UDP payload.
	dtlsMTU = 1200
	// dtlsBatch is how many records are sealed before they are written.
	dtlsBatch = 128
	// dtlsRoom is how many datagrams the engine may write at a time: a batch, and those in hand.
	dtlsRoom = dtlsBatch + 16
	// dtlsCID is the length in bytes of the connection ids that clients are to send.
	dtlsCID = 8
)

// dtlsListener is what the workers share of a DTLS listener. Each of them has a DTLS engine for its own socket:
//
//	reuse-port socket ─► readDTLS ─► engine: cookie, handshake, records opened in place ─► dtlsFront.Serve ─► relay sockets
//	relay socket ─► readRelay ─► dtlsSession.deliver ─► engine: sealed in its send buffers ─► dtlsFront.write
type dtlsListener struct {
	server      *streamServer
	credentials atomic.Pointer[handshake.Credentials] // for the next handshakes
	fronts      []*dtlsFront                          // by worker
}

// openDTLSLocked binds the sockets of a DTLS listener, one for each worker. The caller holds g.mu.
func (g *Gateway) openDTLSLocked(l *listener) error {
	s := &streamServer{gateway: g, shared: g.streams, listener: l}
	d := &dtlsListener{server: s}
	certificate, err := l.config.certificate(time.Now())
	if err != nil {
		return err
	}
	if err := d.show(certificate); err != nil {
		return err
	}
	s.certificate.Store(certificate)
	cids := engine.ByteOwnerCIDs(dtlsCID, 0)
	group, err := udpio.Listen(udpio.Config{
		Addr: l.server, Sockets: len(g.workers), Batch: readBatch, ReadBuffer: listenerBuffer, WriteBuffer: listenerBuffer,
		Coalesce: !g.options.NoCoalesce, Steer: cids.Steering(len(g.workers)),
	})
	if err != nil {
		return explainBind(err, l.server)
	}
	if err := d.embed(g.workers, cids); err != nil {
		_ = group.Close()
		return err
	}
	l.stream, l.dtls, l.group, l.server = s, d, group, group.LocalAddr()
	return g.enterLocked(l)
}

// embed makes the engines.
func (d *dtlsListener) embed(all []*worker, cids *engine.CIDs) error {
	owners := make([]engine.Owner, len(all))
	for i, w := range all {
		f := &dtlsFront{server: d.server, worker: w, start: w.gateway.options.Now(), writer: udpio.NewWriter(dtlsRoom)}
		d.fronts = append(d.fronts, f)
		owners[i] = engine.Owner{Write: f.write, Wake: func() { w.post(func(*worker) { f.engine.TakeOver(f.now()) }) }}
	}
	engines, err := engine.Embed(engine.Config{
		Credentials: &d.credentials, Suites: record.CertificateSuites(), MTU: dtlsMTU, CIDs: cids, HandshakeLife: handshakeTime, Batch: dtlsBatch,
		MaxSessions: maxSessions, MaxHalfOpen: maxSessions, // Admit keeps the configured limits
		NewHandler: func(w *engine.Worker) engine.Handler { return d.fronts[w.ID()] },
	}, owners)
	if err != nil {
		return err
	}
	for i, f := range d.fronts {
		f.engine = engines[i]
	}
	return nil
}

// maxSessions is the highest limit of connections that can be configured.
const maxSessions = 1 << 24

// show sets the certificate for the next handshakes.
func (d *dtlsListener) show(c *tls.Certificate) error {
	key, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		return errors.New("key: it cannot sign; take an ECDSA or an RSA key")
	}
	own, err := handshake.NewCertificate(c.Certificate, key)
	if err != nil {
		return err
	}
	d.credentials.Store(&handshake.Credentials{Certificates: []*handshake.Certificate{own}})
	return nil
}

// dtlsFront is a worker's part of a DTLS listener: the Handler and the socket of its engine.
type dtlsFront struct {
	server   *streamServer
	worker   *worker
	socket   *listenerSocket
	engine   *engine.Embedded
	start    int64  // the engine's time 0
	sessions uint32 // numbers that were given to sessions with connection ids
	closing  bool

	writer  *udpio.Writer
	queue   udpio.Queue
	targets [dtlsRoom]udpio.Target
}

// now returns the engine's time of this poll.
func (f *dtlsFront) now() time.Duration { return time.Duration(f.worker.now - f.start) }

// readDTLS reads one batch from clients and relays it.
func (w *worker) readDTLS(ls *listenerSocket) {
	if w.inUsed > 0 {
		w.flush()
	}
	n, err := ls.conn.ReadBatch(w.in, 0)
	if err != nil {
		ls.counts.add(reasonReceiveError, 1)
		return
	}
	now := ls.dtls.now()
	for i := range w.in[:n] {
		m := &w.in[i]
		size := m.Segment
		if size == 0 {
			size = max(m.N, 1)
		}
		for at := 0; at < m.N; at += size {
			end := min(at+size, m.N)
			ls.dtls.engine.Receive(m.Buf[at:end:end], m.Addr, m.Local, now)
		}
	}
	w.inUsed = len(w.in) // all buffers may be queued for sending
	w.flush()
}

// write sends what the engine has sealed. It never waits.
func (f *dtlsFront) write(messages []udpio.Message) {
	ls := f.socket
	refused, to := 0, (*udpio.Target)(nil)
	for i := range messages {
		m := &messages[i]
		if i == 0 || m.Addr != messages[i-1].Addr || m.Local != messages[i-1].Local {
			to = f.target(i, m)
		}
		if to == nil {
			refused++
			continue
		}
		f.writer.Add(&f.queue, to, m.Buf[:m.N])
	}
	refused += f.writer.FlushConn(ls.conn, &f.queue)
	f.writer.Reset()
	if refused > 0 {
		ls.counts.add(reasonSendRefused, refused)
	}
}

func (f *dtlsFront) target(i int, m *udpio.Message) *udpio.Target {
	local := netip.Addr{}
	if f.socket.conn.Wildcard() {
		local = m.Local
	}
	t, ok := udpio.NewTarget(m.Addr, local, f.socket.conn.IPv6())
	if !ok {
		return nil
	}
	f.targets[i] = t
	return &f.targets[i]
}

// tickDTLS runs the timers of handshakes that are due.
func (w *worker) tickDTLS() {
	for _, f := range w.fronts {
		if now := f.now(); f.engine.Next() <= now {
			f.engine.Tick(now)
		}
	}
}

// close ends all sessions with close_notify.
func (f *dtlsFront) close() {
	if !f.closing {
		f.closing = true
		f.engine.Close()
		f.engine.Publish()
	}
}

// addTo adds the engine's counters to a listener's reasons.
func (d *dtlsListener) addTo(reasons map[string]uint64) {
	for _, f := range d.fronts {
		s := f.engine.Stats()
		for reason, n := range map[string]uint64{
			"dtls_malformed": s.Malformed + s.UnknownAddress + s.UnknownCIDs, "dtls_cookie_sent": s.HelloVerifies,
			"dtls_forged": s.BadMACs + s.ForgedDropped, "dtls_replayed": s.Replays, "dtls_unproven": s.Amplified,
		} {
			if n > 0 {
				reasons[reason] += n
			}
		}
	}
}
