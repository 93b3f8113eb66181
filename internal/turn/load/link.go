package load

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/udpio"
)

// link is the transport of a client's messages. One goroutine receives while others send.
type link interface {
	// send returns how many of the messages the kernel accepted.
	send(messages []udpio.Message) (taken int)
	// receive waits for messages like udpio.Conn.ReadBatch and calls each for every one of them. The caller provides
	// the buffers in room.
	receive(room []udpio.Message, wait time.Duration, each func(b []byte)) (n int, err error)
	watch(p *udpio.Poller, token uint64) error
	overflowed() uint64
	local() netip.AddrPort
	close() error
}

// openLink opens the client's own socket.
func openLink(config *Config, to netip.AddrPort) (link, error) {
	if config.Stream {
		s, err := udpio.DialStream(config.Source, to)
		if err != nil {
			return nil, fmt.Errorf("connect to %v: %w", to, err)
		}
		at, err := s.LocalAddr()
		return &streamLink{s: s, at: at}, err
	}
	from := netip.AddrPortFrom(config.Source, 0)
	if !from.Addr().IsValid() {
		from = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
		if to.Addr().Is6() && !to.Addr().Is4In6() {
			from = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
		}
	}
	group, err := udpio.Listen(udpio.Config{
		Addr: from, Peer: to, Batch: maxBurst, ReadBuffer: clientRoom,
		NoSegment: config.NoSegment, Coalesce: !config.NoCoalesce,
	})
	if err != nil {
		return nil, err
	}
	socket := &datagramLink{group, group.Conn(0)}
	if !config.DTLS {
		return socket, nil
	}
	secure, err := openDTLS(socket, config)
	if err != nil {
		_ = group.Close()
		return nil, fmt.Errorf("DTLS with %v: %w", to, err)
	}
	return secure, nil
}

// datagramLink is a UDP socket.
type datagramLink struct {
	group *udpio.Group
	conn  *udpio.Conn
}

func (d *datagramLink) send(messages []udpio.Message) int { return d.conn.WriteAll(messages) }

func (d *datagramLink) receive(room []udpio.Message, wait time.Duration, each func(b []byte)) (int, error) {
	n, err := d.conn.ReadBatch(room, wait)
	for i := range room[:n] {
		eachSegment(&room[i], each)
	}
	return n, err
}

// eachSegment splits a run of datagrams that was received as one.
func eachSegment(m *udpio.Message, each func(b []byte)) {
	segment := m.Segment
	if segment == 0 {
		segment = m.N
	}
	for at := 0; at < m.N; at += segment {
		each(m.Buf[at:min(at+segment, m.N)])
	}
}

func (d *datagramLink) watch(p *udpio.Poller, token uint64) error { return p.AddConn(d.conn, token) }
func (d *datagramLink) overflowed() uint64                        { return d.conn.Overflowed() }
func (d *datagramLink) local() netip.AddrPort                     { return d.conn.LocalAddr() }
func (d *datagramLink) close() error                              { return d.group.Close() }

const (
	// streamRead is how many bytes one read of a stream takes.
	streamRead = 64 << 10
	// writeTimeout is how long a server may accept no byte of a burst.
	writeTimeout = 5 * time.Second
)

// streamLink is a TCP connection to a TURN server: messages follow one another, padded to four bytes (RFC 8656 section 12.5).
type streamLink struct {
	mu  sync.Mutex // guards writes; s.Write and s.Read are one system call each
	s   udpio.Stream
	at  netip.AddrPort
	out []byte

	in   []byte
	used int
}

// send writes a burst at once. If the server is too slow, send waits: the rate falls, and nothing is lost here.
func (t *streamLink) send(messages []udpio.Message) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.out[:0]
	for i := range messages {
		m := &messages[i]
		b = append(b, m.Buf[:m.N]...)
		b = append(b, make([]byte, -m.N&3)...)
	}
	t.out = b
	for len(b) > 0 {
		n, err := t.s.Write(b)
		if errors.Is(err, unix.EAGAIN) {
			err = t.await(unix.POLLOUT, writeTimeout)
		}
		if err != nil {
			return 0
		}
		b = b[n:]
	}
	return len(messages)
}

// await waits until the socket is ready; it returns an error after the timeout.
func (t *streamLink) await(events int16, wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		fds := [1]unix.PollFd{{Fd: int32(t.s.FD()), Events: events}}
		n, err := unix.Poll(fds[:], int(max(time.Until(end).Milliseconds(), 0)))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return unix.ETIMEDOUT
		default:
			return nil
		}
	}
}

func (t *streamLink) receive(_ []udpio.Message, wait time.Duration, each func(b []byte)) (n int, err error) {
	if wait > 0 {
		if err := t.await(unix.POLLIN, wait); err != nil {
			if errors.Is(err, unix.ETIMEDOUT) {
				err = nil
			}
			return 0, err
		}
	}
	if t.in == nil {
		t.in = make([]byte, 2*streamRead)
	}
	got, err := t.s.Read(t.in[t.used:min(t.used+streamRead, len(t.in))])
	if errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	b := t.in[:t.used+got]
	for {
		size, ok := requests.FrameSize(b)
		if !ok {
			return n, errors.New("the server sent bytes that are no TURN messages")
		}
		if size == 0 || size > len(b) {
			break
		}
		each(b[:size])
		b = b[size:]
		n++
	}
	t.used = copy(t.in, b)
	return n, err
}

func (t *streamLink) watch(p *udpio.Poller, token uint64) error { return p.AddStream(&t.s, token) }
func (t *streamLink) overflowed() uint64                        { return 0 }
func (t *streamLink) local() netip.AddrPort                     { return t.at }

func (t *streamLink) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.Close()
	return nil
}
