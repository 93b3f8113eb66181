package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/coap/stream"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/udpio"
)

const (
	dialTimeout = 10 * time.Second // of a connection, TLS included
	csmWait     = time.Second      // for the server's settings: some servers send none, and the base values hold
	maxUnsent   = 1 << 20          // bytes that a server need not have taken
)

// streamPeer is the connection of a client over TCP or TLS. A goroutine makes it; then it belongs to the client's worker, whose poller
// watches it.
type streamPeer struct {
	socket  udpio.Stream
	tls     *tls.Conn    // nil over TCP
	wire    *stream.Wire // of tls
	decoder stream.Decoder
	session stream.Session
	out     []byte // not sent yet: frames, over TLS records
	room    bool   // the poller reports when there is room for out
	ended   bool
}

// dialling are the connections that a worker's goroutines are making.
type dialling struct {
	tasks  sync.WaitGroup
	mu     sync.Mutex // guards what follows
	done   []dialled
	taken  []dialled // given back by take
	cancel context.CancelFunc
	ctx    context.Context
}

// dialled is a connection, or why there is none.
type dialled struct {
	client *simulated
	peer   *streamPeer
	err    error
}

// begin runs dial in a goroutine; wake makes the worker call take.
func (d *dialling) begin(dial func(ctx context.Context) dialled, wake func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == nil {
		d.ctx, d.cancel = context.WithCancel(context.Background())
	}
	ctx := d.ctx
	d.tasks.Go(func() {
		one := dial(ctx)
		d.mu.Lock()
		d.done = append(d.done, one)
		d.mu.Unlock()
		wake()
	})
}

// take returns what has come since the last call, until the next one.
func (d *dialling) take() []dialled {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.done
	d.done, d.taken = d.taken[:0], all
	return all
}

// end ends all goroutines and closes what they have made.
func (d *dialling) end() {
	d.mu.Lock()
	if d.cancel != nil {
		d.cancel()
	}
	d.mu.Unlock()
	d.tasks.Wait()
	for _, one := range d.take() {
		if one.peer != nil {
			one.peer.socket.Abort()
		}
	}
}

// dial begins to connect the client.
func (c *simulated) dial() {
	w := c.w
	c.state, c.begun = stateHandshake, w.now
	w.inFlight++
	if c.hadSession {
		w.stats.Rehandshakes++
	}
	from := w.source(c.socket)
	c.socket.opened++
	w.dialling.begin(func(ctx context.Context) dialled {
		p, err := w.b.dialStream(ctx, from, c.tickets)
		return dialled{c, p, err}
	}, w.wake)
}

// dialStream connects over TCP or TLS.
func (b *bench) dialStream(ctx context.Context, from netip.Addr, tickets tls.ClientSessionCache) (*streamPeer, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	if from.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	conn, err := dialer.DialContext(ctx, "tcp", b.address.String())
	if err != nil {
		return nil, err
	}
	p := new(streamPeer)
	p.decoder.Max, p.session.Peer = maxStreamMessage, stream.Base()
	if b.tls != nil {
		cfg := b.tls.Clone()
		cfg.NextProtos, cfg.ClientSessionCache = []string{"coap"}, tickets
		p.wire = &stream.Wire{Conn: conn}
		p.tls = tls.Client(p.wire, cfg)
		if err := p.tls.HandshakeContext(ctx); err != nil {
			conn.Close() //nolint:errcheck // the error that matters is err
			return nil, err
		}
	}
	p.socket, err = udpio.DuplicateStream(conn.(*net.TCPConn))
	return p, err
}

// dialled takes a connection that was made, and sends our settings.
func (w *worker) dialled(d dialled) {
	c, p := d.client, d.peer
	if d.err != nil {
		c.unconnected(d.err)
		return
	}
	if err := w.poller.AddStream(&p.socket, c.socket.index); err != nil {
		p.socket.Abort()
		c.unconnected(err)
		return
	}
	c.socket.stream = p
	c.setTimer(w.now + csmWait)
	settings := stream.Announced()
	settings.MaxMessageSize = maxStreamMessage
	if p.tls != nil {
		p.wire.Out = &p.out
	}
	c.queue(stream.AppendCSM(w.frame[:0], settings))
	if p.tls != nil {
		w.readTLS(c, p) // what came with the end of the handshake
	}
}

// unconnected ends an attempt to connect.
func (c *simulated) unconnected(err error) {
	w := c.w
	w.inFlight--
	c.clearTimer()
	c.hangUp()
	w.stats.HandshakeErrors++
	if errors.Is(err, unix.EMFILE) {
		w.fail(fmt.Errorf("%w; raise the limit of open files (ulimit -n)", err))
	}
	if w.phase == phaseProbe {
		w.fail(explainTLS(err, dialTimeout))
	}
	c.trouble()
}

// introduced makes a client ready when the server's settings have come, or are not waited for any more.
func (c *simulated) introduced() {
	w := c.w
	if c.state != stateHandshake {
		return
	}
	w.inFlight--
	c.hadSession = true
	w.stats.Handshakes++
	if p := c.socket.stream; p.tls != nil && p.tls.ConnectionState().DidResume {
		w.stats.Resumed++
	}
	w.stats.Clients++
	w.handshakes.Record(w.now - c.begun)
	c.ready()
}

// readStream handles what the poller has reported of a connection.
func (w *worker) readStream(s *socket) {
	c, p := s.clients[0], s.stream
	if p == nil {
		return // closed in this round
	}
	if p.room {
		c.flush()
	}
	n, err := p.socket.Read(w.in)
	switch {
	case errors.Is(err, unix.EAGAIN):
	case p.tls != nil:
		p.wire.In, p.wire.Err = w.in[:n], err
		w.readTLS(c, p)
	case err != nil:
		c.broken(err)
	default:
		w.decode(c, p, w.in[:n])
	}
}

// readTLS decodes what TLS has received, including the contents of its own buffers.
func (w *worker) readTLS(c *simulated, p *streamPeer) {
	if w.clear == nil {
		w.clear = make([]byte, 16<<10)
	}
	for !p.ended {
		n, err := p.tls.Read(w.clear)
		if n > 0 {
			w.decode(c, p, w.clear[:n])
		}
		if errors.Is(err, stream.ErrWouldBlock) {
			break
		}
		if err != nil && !p.ended {
			c.broken(err)
		}
	}
	if !p.ended {
		c.flush() // messages of TLS itself
	}
}

// decode handles the messages in what was received.
func (w *worker) decode(c *simulated, p *streamPeer, in []byte) {
	p.decoder.Feed(in)
	for !p.ended {
		ok, err := p.decoder.Next(&w.received)
		if err != nil {
			c.queue(stream.AppendAbort(w.frame[:0], err.Error()))
			c.broken(fmt.Errorf("what the server sends is no CoAP over TCP: %w", err))
			return
		}
		if !ok {
			return
		}
		event, out := p.session.Receive(&w.received, w.frame[:0])
		switch event {
		case stream.Plain:
			if answer := w.endpoint.ReceiveReliable(&c.exchange, &w.received, w.out, w.now); len(answer) > 0 && !p.ended {
				c.deliver(answer)
			}
			continue
		case stream.Updated:
			c.introduced()
		case stream.Released, stream.Aborted, stream.Failed:
			c.queue(out)
			c.broken(errors.New("the server ended the connection: " + p.session.Reason))
			return
		}
		if !p.ended {
			c.queue(out)
		}
	}
}

// broken ends a connection that the server has ended, or that failed.
func (c *simulated) broken(err error) {
	if c.state == stateHandshake {
		c.unconnected(err)
		return
	}
	c.closed()
}

// deliver sends a message of the client's session.
func (c *simulated) deliver(datagram []byte) {
	w, p := c.w, c.socket.stream
	if !w.b.target.Stream {
		c.seal(record.ApplicationData, datagram)
		return
	}
	if p == nil {
		return
	}
	frame, err := stream.Append(w.frame[:0], datagram)
	if limit := p.session.Peer.MaxMessageSize; err == nil && len(frame) > limit {
		err = fmt.Errorf("a message of %d bytes: the server takes at most %d; send it in blocks", len(frame), limit)
	}
	if w.frame = frame; err != nil {
		w.fail(err)
		return
	}
	c.queue(frame)
}

// queue sends a frame, over TLS as a record.
func (c *simulated) queue(frame []byte) {
	p := c.socket.stream
	if len(frame) == 0 || p == nil {
		return
	}
	if p.tls == nil {
		p.out = append(p.out, frame...)
	} else if _, err := p.tls.Write(frame); err != nil {
		_ = unix.Shutdown(p.socket.FD(), unix.SHUT_RDWR) // the poller reports its end
		return
	}
	c.flush()
}

// flush writes what the kernel accepts now. A connection that fails is reported by the poller.
func (c *simulated) flush() {
	w, p := c.w, c.socket.stream
	n, err := p.socket.Write(p.out)
	if err != nil && !errors.Is(err, unix.EAGAIN) || len(p.out)-n > maxUnsent {
		_ = unix.Shutdown(p.socket.FD(), unix.SHUT_RDWR)
		n = len(p.out)
	}
	p.out = p.out[:copy(p.out, p.out[n:])]
	if waits := len(p.out) > 0; waits != p.room {
		p.room = waits
		if err := w.poller.AwaitRoom(&p.socket, c.socket.index, waits); err != nil {
			w.fail(err)
		}
	}
}

// release ends the connection: with a Release where it was of use.
func (c *simulated) release() {
	p := c.socket.stream
	c.queue(stream.AppendRelease(c.w.frame[:0]))
	p.ended = true
	p.socket.Close() // leaves the poller
	c.socket.stream = nil
}
