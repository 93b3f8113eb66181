package gateway

import (
	"encoding/binary"
	"net"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/udpio"
)

const (
	// pipeDatagrams is how many unread datagrams of one session may be queued.
	pipeDatagrams = 128
	pipeBytes     = 1 << 17
)

// dtlsPipe is the net.PacketConn of one DTLS session. pion/dtls reads the datagrams that the front's reader puts in;
// what pion/dtls writes is sent to the client through the front's socket.
//
// pion/dtls keeps state for a client before the client has returned a cookie, and makes that cookie at random. The front checks
// cookies itself, without state, so a session begins with a hello that already has one. The pipe therefore replays the exchange
// for the library: it first delivers the hello without the cookie, discards the library's HelloVerifyRequest, replaces the
// cookie that the library expects by the client's, and then delivers the client's real hello. Finished covers that hello only (RFC 6347 §4.2.1), so
// both ends hash the same bytes.
type dtlsPipe struct {
	front  *dtlsReader
	key    sessionKey
	cookie [cookieSize]byte // the cookie of the hello that began the session
	conn   *dtls.Conn       // set before its handshake
	offset uint64           // added to the library's record sequences of epoch 0, so that they start at that of the client's hello

	mu       sync.Mutex
	queue    [][]byte
	bytes    int
	hello    []byte // the client's hello, until the library has sent its HelloVerifyRequest
	open     bool   // the library has sent it
	closed   bool   // reading has ended
	muted    bool   // writes are discarded
	expired  bool   // the read deadline has passed
	deadline *time.Timer
	wake     chan struct{}
}

func newDTLSPipe(front *dtlsReader, key sessionKey, h *dtlsHello) *dtlsPipe {
	p := &dtlsPipe{front: front, key: key, cookie: [cookieSize]byte(h.cookie), wake: make(chan struct{}, 1)}
	p.hello = append([]byte(nil), h.record...)
	p.queue = [][]byte{h.withoutCookie()}
	p.offset = h.sequence
	return p
}

// put queues a copy of a datagram. It returns false if the queue is full.
func (p *dtlsPipe) put(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.queue) >= pipeDatagrams || p.bytes+len(b) > pipeBytes {
		return false
	}
	p.queue = append(p.queue, append([]byte(nil), b...))
	p.bytes += len(b)
	p.signal()
	return true
}

func (p *dtlsPipe) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// ReadFrom implements net.PacketConn, for one reader.
func (p *dtlsPipe) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		p.mu.Lock()
		switch {
		case p.expired:
			p.mu.Unlock()
			return 0, nil, os.ErrDeadlineExceeded
		case p.closed:
			p.mu.Unlock()
			return 0, nil, net.ErrClosed
		case len(p.queue) > 0:
			n := copy(b, p.queue[0])
			p.bytes -= len(p.queue[0])
			p.queue[0] = nil
			if p.queue = p.queue[1:]; len(p.queue) == 0 {
				p.queue, p.bytes = nil, 0
			}
			p.mu.Unlock()
			return n, net.UDPAddrFromAddrPort(p.key.client), nil
		}
		p.mu.Unlock()
		<-p.wake
	}
}

// WriteTo implements net.PacketConn; addr is always the client. A datagram that the kernel refuses is lost, like one
// that the network drops.
func (p *dtlsPipe) WriteTo(b []byte, _ net.Addr) (int, error) {
	p.mu.Lock()
	muted, open := p.muted, p.open
	p.mu.Unlock()
	if muted {
		return len(b), nil
	}
	if !open && isHelloVerify(b) {
		p.begin()
		return len(b), nil
	}
	out := b
	if len(b) >= recordHeader && binary.BigEndian.Uint16(b[3:]) == 0 && p.offset != 0 {
		out = p.shift(b)
	}
	p.front.send(p.key, out)
	return len(b), nil
}

func isHelloVerify(b []byte) bool {
	return len(b) > recordHeader && b[0] == recordHandshake && b[recordHeader] == typeHelloVerify
}

// begin sets the cookie that the library expects to the client's cookie, and lets the library read the client's
// hello. It runs on the goroutine of the library's handshake, which is the only one that reads that cookie.
func (p *dtlsPipe) begin() {
	copy(libraryCookie(p.conn), p.cookie[:])
	if p.offset > 0 {
		p.offset-- // the HelloVerifyRequest used one sequence number
	}
	p.mu.Lock()
	p.queue = append([][]byte{p.hello}, p.queue...)
	p.bytes += len(p.hello)
	p.hello, p.open = nil, true
	p.mu.Unlock()
	p.signal()
}

// libraryCookie returns the memory of the cookie that a handshake of pion/dtls v3.1.15 expects; no option sets it. It
// is nil in a version that stores the cookie elsewhere: then handshakes fail, and so does TestDTLSHandshake.
func libraryCookie(c *dtls.Conn) []byte {
	state := reflect.ValueOf(c).Elem().FieldByName("state")
	if state.Kind() != reflect.Struct {
		return nil
	}
	cookie := state.FieldByName("cookie")
	if cookie.Kind() != reflect.Slice || cookie.Len() != cookieSize {
		return nil
	}
	return cookie.Bytes()
}

// shift returns a copy of a datagram with the offset added to the sequences of its records of epoch 0.
func (p *dtlsPipe) shift(b []byte) []byte {
	out := append([]byte(nil), b...)
	for at := out; len(at) >= recordHeader; {
		if binary.BigEndian.Uint16(at[3:]) == 0 {
			sequence := binary.BigEndian.Uint64(at[3:]) + p.offset
			binary.BigEndian.PutUint64(at[3:], sequence&(1<<48-1))
		}
		size := recordHeader + int(binary.BigEndian.Uint16(at[11:]))
		if size > len(at) {
			break
		}
		at = at[size:]
	}
	return out
}

// Close ends reading. The library may still send its close_notify.
func (p *dtlsPipe) Close() error {
	p.mu.Lock()
	p.closed = true
	p.queue = nil
	p.mu.Unlock()
	p.signal()
	return nil
}

// mute discards all further writes to the client, because the client has begun a new session and would not understand
// them.
func (p *dtlsPipe) mute() {
	p.mu.Lock()
	p.muted = true
	p.mu.Unlock()
}

// LocalAddr implements net.PacketConn.
func (p *dtlsPipe) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(p.front.conn.LocalAddr()) }

// SetDeadline implements net.PacketConn. It sets the read deadline only, because a write never blocks.
func (p *dtlsPipe) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (p *dtlsPipe) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline makes a blocked read end at t.
func (p *dtlsPipe) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deadline != nil {
		p.deadline.Stop()
		p.deadline = nil
	}
	p.expired = false
	if t.IsZero() {
		return nil
	}
	if wait := time.Until(t); wait > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() { p.expire(timer) })
		p.deadline = timer
		return nil
	}
	p.expired = true
	p.signal()
	return nil
}

func (p *dtlsPipe) expire(timer *time.Timer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deadline == timer {
		p.expired = true
		p.signal()
	}
}

// send sends one datagram to the client.
func (r *dtlsReader) send(key sessionKey, b []byte) {
	messages := [1]udpio.Message{{Buf: b, N: len(b), Addr: key.client, Local: key.local}}
	_, _ = r.conn.WriteBatch(messages[:])
}
