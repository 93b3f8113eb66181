package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/steering/rate"
	"github.com/weir-lb/weir/internal/turn/allocation"
)

const (
	// copyBufferBytes is the buffer size of one direction of a data connection: all bytes that this process holds.
	copyBufferBytes = 32 << 10
	// halfClosedTime is how long one direction may be silent after the other one has ended.
	halfClosedTime = 2 * time.Minute
	// stuckTime is how long a side may accept no bytes.
	stuckTime = time.Minute
)

// dataConnections finds the connection to a peer by the id in a ConnectionBind request. The request may arrive on a
// connection whose client address belongs to another worker. Any goroutine may call it.
type dataConnections struct {
	mu   sync.Mutex
	byID map[uint32]*dataConn
	pool sync.Pool // of *[carryBytes]byte
}

func (t *dataConnections) add(d *dataConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = make(map[uint32]*dataConn)
	}
	t.byID[d.id] = d
}

func (t *dataConnections) find(id uint32) *dataConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *dataConnections) remove(d *dataConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID[d.id] == d {
		delete(t.byID, d.id)
	}
}

func (t *dataConnections) buffer() *[copyBufferBytes]byte {
	if b, ok := t.pool.Get().(*[copyBufferBytes]byte); ok {
		return b
	}
	return new([copyBufferBytes]byte)
}

// dataConn is a connection to a peer and, once it is bound, the client's data connection (RFC 6062 §4.4). Bytes
// received on one are sent on the other.
type dataConn struct {
	relay  *tcpRelay
	id     uint32
	peer   *net.TCPConn
	counts *counts // of the peer's cluster
	ahead  []byte  // what the client sent with its ConnectionBind
	half   atomic.Bool
	done   chan struct{}

	mu      sync.Mutex
	client  *streamConn // nil before it is bound
	closed  bool
	resumed chan struct{} // nil unless it is suspended; closed when it goes on
}

// suspend stops relaying in both directions, or resumes it. Bytes that were read are held here; the rest stays in the
// kernel or at the senders.
func (d *dataConn) suspend(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case yes && d.resumed == nil:
		d.resumed = make(chan struct{})
	case !yes && d.resumed != nil:
		close(d.resumed)
		d.resumed = nil
	}
}

// awaitResume waits while the connection is suspended. It returns false if the connection has ended.
func (d *dataConn) awaitResume() bool {
	for {
		d.mu.Lock()
		resumed := d.resumed
		d.mu.Unlock()
		if resumed == nil {
			return true
		}
		select {
		case <-resumed:
		case <-d.done:
			return false
		}
	}
}

// close ends both connections. Any goroutine may call it.
func (d *dataConn) close() {
	d.mu.Lock()
	closed, client := d.closed, d.client
	d.closed = true
	d.mu.Unlock()
	if closed {
		return
	}
	close(d.done)
	d.relay.worker.gateway.streams.data.remove(d)
	_ = d.peer.Close()
	if client != nil {
		client.end(connectionShut)
	}
}

// attach joins a client connection. It returns false if the peer's connection has ended.
func (d *dataConn) attach(c *streamConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.client = c
	return true
}

// bindAt returns the index of the first ConnectionBind request, -1 if there is none.
func bindAt(frames [][]byte) int {
	for i, frame := range frames {
		if binary.BigEndian.Uint16(frame) == allocation.TypeConnectionBind {
			return i
		}
	}
	return -1
}

// bind queries the worker that owns the connection to the peer, and answers the client. It returns the peer
// connection that this connection is joined with, or nil if this one continues to carry messages. It runs on the
// connection's reader.
func (c *streamConn) bind(chunk *chunk, i int) *dataConn {
	pool := c.frames.pool
	request := bytes.Clone(chunk.frames[i])
	before, after := cloneFrames(pool, chunk.frames[:i]), cloneFrames(pool, chunk.frames[i+1:])
	pool.put(chunk)
	if before != nil {
		c.dispatch(before)
	}
	d := c.requestBind(request)
	if d == nil {
		if after != nil {
			c.dispatch(after)
		}
		return nil
	}
	if after != nil { // these are no longer messages but early data for the peer
		d.ahead = bytes.Join(after.frames, nil)
	}
	d.ahead = append(d.ahead, c.frames.take()...)
	return d
}

func cloneFrames(pool *chunkPool, frames [][]byte) *chunk {
	if len(frames) == 0 {
		return nil
	}
	all := bytes.Join(frames, nil)
	clone := pool.get(len(all))
	copy(clone.buf, all)
	at := 0
	for _, frame := range frames {
		clone.frames = append(clone.frames, clone.buf[at:at+len(frame):at+len(frame)])
		at += len(frame)
	}
	return clone
}

// ownsAllocation queries the connection's own worker, which has handled everything that came before this request. A
// connection with an allocation carries messages until its end (RFC 6062, section 5.4), and another worker's table
// would not know about it.
func (c *streamConn) ownsAllocation() bool {
	owns := make(chan bool, 1)
	c.worker.post(func(w *worker) { owns <- w.table.Find(c.path) != nil })
	select {
	case yes := <-owns:
		return yes
	case <-c.ending:
		return true
	}
}

// requestBind passes the request to the table that assigned the id. Any table refuses an unknown id.
func (c *streamConn) requestBind(request []byte) *dataConn {
	w, data := c.worker, &c.server.shared.data
	if id, ok := allocation.ConnectionID(request); ok {
		if d := data.find(id); d != nil && !c.ownsAllocation() {
			w = d.relay.worker
		}
	}
	type result struct {
		answer []byte
		d      *dataConn
	}
	results := make(chan result, 1)
	w.post(func(w *worker) {
		id, answer, reason := w.table.ConnectionBind(c.path, request, nil, w.now)
		w.next = 0
		c.server.listener.counts[w.index].add(reason, 1)
		var d *dataConn
		if reason == allocation.OK {
			if d = data.find(id); d == nil || !d.attach(c) {
				answer, d = nil, nil // the connection has just ended
				c.end(connectionShut)
			}
		}
		results <- result{answer, d}
	})
	select {
	case r := <-results:
		c.out.put(r.answer)
		return r.d
	case <-c.ending:
		w.post(func(w *worker) { // runs after the function posted above
			if r := <-results; r.d != nil {
				r.d.relay.forget(w, r.d)
				r.d.close()
			}
		})
		return nil
	}
}

// join relays bytes between the client and the peer until both directions have ended. The client's writer sends the
// answer first.
func (d *dataConn) join(c *streamConn, written <-chan struct{}) {
	c.server.counts.add(connectionBound)
	c.server.shared.guests.leave(c.phaseEntry)
	c.out.end()
	<-written
	_ = c.conn.SetDeadline(time.Time{})
	failed := make(chan error, 1)
	go func() { failed <- d.copyDirection(c.conn, d.peer, true, nil) }()
	err := d.copyDirection(d.peer, c.conn, false, d.ahead)
	if err != nil { // this direction is broken, so both end
		d.fail(err)
	}
	if err := <-failed; err != nil {
		d.fail(err)
	}
	c.end(connectionClosed)
	d.close()
	d.relay.worker.post(func(w *worker) { d.relay.forget(w, d) })
}

// forget removes a connection that has ended.
func (r *tcpRelay) forget(w *worker, d *dataConn) {
	if !r.closed && r.conns[d.id] == d {
		delete(r.conns, d.id)
		w.table.ConnectionClosed(r.client.a, d.id)
	}
}

// fail ends both sides at once. The peer gets a reset, so that it does not take incomplete data for complete.
func (d *dataConn) fail(error) {
	_ = d.peer.SetLinger(0)
	d.close()
}

// copyDirection relays one direction until its end, which it passes on (half-close).
func (d *dataConn) copyDirection(to, from net.Conn, down bool, ahead []byte) error {
	data := &d.relay.worker.gateway.streams.data
	buf := data.buffer()
	defer data.pool.Put(buf)
	if len(ahead) > 0 {
		if err := d.pass(to, ahead, down); err != nil {
			return err
		}
	}
	for {
		if d.half.Load() {
			_ = from.SetReadDeadline(time.Now().Add(halfClosedTime))
		}
		n, err := from.Read(buf[:])
		if n > 0 {
			if err := d.pass(to, buf[:n], down); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			d.half.Store(true)
			_ = to.SetReadDeadline(time.Now().Add(halfClosedTime)) // the other direction may be blocked in a read
			return closeWrite(to)
		case err != nil:
			return err
		}
	}
}

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok { // TCP and TLS connections have this method
		return half.CloseWrite()
	}
	return nil
}

// pass writes b at most at the rate of the allocation's bandwidth quota, and counts it.
func (d *dataConn) pass(to net.Conn, b []byte, down bool) error {
	r := d.relay
	quotas := &r.worker.gateway.shared.Policy().Quotas
	if wait := r.pace.wait(len(b), quotas.Bandwidth, quotas.Burst, time.Duration(r.worker.gateway.options.Now())); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-d.done:
			return net.ErrClosed
		}
	}
	if !d.awaitResume() {
		return net.ErrClosed
	}
	_ = to.SetWriteDeadline(time.Now().Add(stuckTime))
	n, err := to.Write(b)
	relayed(r.client, d.counts, down, 1, n, r.worker.gateway.options.Now())
	return err
}

// pacer spreads the bytes of an allocation's connections over time. Any goroutine may call it.
type pacer struct {
	mu     sync.Mutex
	bucket rate.Bucket
}

// wait charges n bytes and returns how long to wait before they are sent; 0 if there is no rate limit.
func (p *pacer) wait(n int, bytesPerSecond float64, burst int, now time.Duration) time.Duration {
	if bytesPerSecond <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bucket.Spend(now, rate.Cost(float64(n), bytesPerSecond))
	return p.bucket.Wait(now, rate.Cost(float64(burst), bytesPerSecond))
}
