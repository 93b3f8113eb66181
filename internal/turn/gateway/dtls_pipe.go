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
	// pipeDatagrams is how many datagrams of one session may wait to be read.
	pipeDatagrams = 128
	pipeBytes     = 1 << 17
)

// dtlsPipe is the net.PacketConn of one DTLS session: what the front's reader puts in, pion/dtls reads; what it writes goes
// to the client through the front's socket.
//
// pion/dtls keeps state for a client before it has shown a cookie, and makes that cookie at random. The front asks for
// cookies itself, without state, so a session begins with a hello that has one already. The pipe replays the exchange to
// the library: first the hello without the cookie; the library's HelloVerifyRequest is swallowed and the cookie that it
// waits for replaced by the client's; then the client's real hello. Finished covers that hello only (RFC 6347 §4.2.1), so
// both ends hash the same bytes.
type dtlsPipe struct {
	front  *dtlsReader
	key    sessionKey
	cookie [cookieSize]byte // of the hello that began the session
	conn   *dtls.Conn       // set before its handshake
	offset uint64           // added to the library's record sequences of epoch 0: they begin at the client's hello's

	mu       sync.Mutex
	queue    [][]byte
	bytes    int
	hello    []byte // the client's hello, until the library has asked for it
	open     bool   // it has
	closed   bool   // no reads any more
	muted    bool   // no writes either
	expired  bool   // the read deadline is over
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

// put queues a copy of a datagram; false: there are too many.
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

// ReadFrom is net.PacketConn's, for one reader.
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

// WriteTo is net.PacketConn's; addr is always the client. A datagram that the kernel does not take is lost, as on the way.
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

// begin makes the client's cookie the one that the library waits for, and lets it read the client's hello. It runs on the
// goroutine of the library's handshake, which alone looks at its cookie.
func (p *dtlsPipe) begin() {
	copy(libraryCookie(p.conn), p.cookie[:])
	if p.offset > 0 {
		p.offset-- // the library has used one
	}
	p.mu.Lock()
	p.queue = append([][]byte{p.hello}, p.queue...)
	p.bytes += len(p.hello)
	p.hello, p.open = nil, true
	p.mu.Unlock()
	p.signal()
}

// libraryCookie is the memory of the cookie that a handshake of pion/dtls v3.1.15 waits for; no option sets it. It is nil in
// a version that keeps it elsewhere: then handshakes fail, and TestDTLSHandshake does.
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

// Close ends reading; the library may still say goodbye.
func (p *dtlsPipe) Close() error {
	p.mu.Lock()
	p.closed = true
	p.queue = nil
	p.mu.Unlock()
	p.signal()
	return nil
}

// mute keeps everything from the client: it has begun anew and would not understand.
func (p *dtlsPipe) mute() {
	p.mu.Lock()
	p.muted = true
	p.mu.Unlock()
}

// LocalAddr is net.PacketConn's.
func (p *dtlsPipe) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(p.front.conn.LocalAddr()) }

// SetDeadline, SetReadDeadline and SetWriteDeadline are net.PacketConn's; a write never waits.
func (p *dtlsPipe) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetWriteDeadline does nothing.
func (p *dtlsPipe) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline ends a read that waits at t.
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

// send gives one datagram to the kernel.
func (r *dtlsReader) send(key sessionKey, b []byte) {
	messages := [1]udpio.Message{{Buf: b, N: len(b), Addr: key.client, Local: key.local}}
	_, _ = r.conn.WriteBatch(messages[:])
}
