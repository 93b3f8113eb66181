package turncat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/pion/logging"
	"github.com/pion/stun/v4"
	"github.com/pion/turn/v5"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/turn/requests"
)

// tcpSession is an allocation of RFC 6062 with its connection to the peer. pion/turn keeps the control connection alive.
type tcpSession struct {
	control net.Conn
	client  *turn.Client
	alloc   interface{ Close() error }
	data    net.Conn
}

func (s *tcpSession) close() {
	if s.data != nil {
		_ = s.data.Close()
	}
	if s.alloc != nil {
		_ = s.alloc.Close() // Refresh with lifetime 0; the transport is reliable
	}
	if s.client != nil {
		s.client.Close()
	}
	_ = s.control.Close()
}

// openTCP allocates, installs a permission for the peer and, with connect, connects to it (RFC 6062 section 4).
func (t *Tunnel) openTCP(ctx context.Context, connect bool) (_ *tcpSession, err error) {
	credentials, err := t.config.Credentials(time.Unix(0, t.now()))
	if err != nil {
		return nil, err
	}
	server := t.serverAddr()
	s := &tcpSession{}
	if s.control, err = t.config.dialServer(ctx, server); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.control.SetDeadline(time.Now()) })
	defer stop()
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	family := turn.RequestedAddressFamilyIPv4
	if t.peer.Addr().Is6() {
		family = turn.RequestedAddressFamilyIPv6
	}
	quiet := logging.NewDefaultLoggerFactory()
	quiet.DefaultLogLevel = logging.LogLevelDisabled
	s.client, err = turn.NewClient(&turn.ClientConfig{
		TURNServerAddr: server.String(), Username: credentials.User, Password: credentials.Password,
		Conn: turn.NewSTUNConn(s.control), RequestedAddressFamily: family, LoggerFactory: quiet,
	})
	if err != nil {
		return nil, fmt.Errorf("TURN client: %w", err)
	}
	if err := s.client.Listen(); err != nil {
		return nil, fmt.Errorf("TURN client: %w", err)
	}
	alloc, err := s.client.AllocateTCPWithContext(ctx)
	if err != nil {
		return nil, refusalOf(err, credentials.User)
	}
	s.alloc = alloc
	if !connect {
		if err := s.client.CreatePermission(net.TCPAddrFromAddrPort(t.peer)); err != nil {
			return nil, fmt.Errorf("the TURN server's permission for %v: %w", t.peer, err)
		}
		return s, nil
	}
	if s.data, err = t.config.dialServer(ctx, server); err != nil {
		return nil, err
	}
	data := &dataConn{TCPConn: tcpBelow(s.data), through: s.data}
	if _, err := alloc.DialWithConn(data, "tcp", t.peer.String()); err != nil {
		return nil, fmt.Errorf("connect to %v through the TURN server: %w", t.peer, err)
	}
	return s, nil
}

// dataConn is what pion/turn uses as a data connection: TCP, with or without TLS above it.
type dataConn struct {
	*net.TCPConn
	through net.Conn
}

// Read fills b completely, because pion/turn requires that for the answer to ConnectionBind. Later bytes are read
// without this type.
func (c *dataConn) Read(b []byte) (int, error) { return io.ReadFull(c.through, b) }

func (c *dataConn) Write(b []byte) (int, error) { return c.through.Write(b) }

func tcpBelow(conn net.Conn) *net.TCPConn {
	if above, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = above.NetConn()
	}
	tcp, _ := conn.(*net.TCPConn)
	return tcp
}

// refusalOf converts an error of pion/turn to a Refusal.
func refusalOf(err error, user string) error {
	var refused *stun.TurnError
	if !errors.As(err, &refused) {
		return err
	}
	return &Refusal{
		Request: "Allocate", Code: int(refused.ErrorCodeAttr.Code), Reason: requests.Printable(refused.ErrorCodeAttr.Reason, 80), User: user,
	}
}

func (t *Tunnel) checkTCP() error {
	s, err := t.openTCP(t.ctx, false)
	if err == nil {
		s.close()
	}
	return t.judge(err)
}

// serveTCP relays one client's bytes to the TCP peer and back. If the server disappears, the client's connection is
// closed, because bytes of a stream must not be lost in between.
func (t *Tunnel) serveTCP(local *stream) {
	defer t.leave()
	defer local.end()
	if t.config.Listen.Kind == KindStdio {
		defer t.finish()
	}
	s, err := t.openTCP(t.ctx, true)
	if err != nil {
		if t.ctx.Err() == nil {
			t.tcp.failures.Add(1)
			t.warn("no connection through the TURN server", "error", err)
		}
		return
	}
	defer s.close()
	t.tcp.allocations.Add(1)
	t.tcp.sessions.Add(1)
	defer t.tcp.sessions.Add(-1)
	stop := context.AfterFunc(t.ctx, func() {
		_ = s.data.SetDeadline(time.Now())
		local.end()
	})
	defer stop()
	t.relayTCP(local, s.data)
}

// stuckTime is how long the server may accept none of the bytes that a client sent before the end of its input.
const stuckTime = 30 * time.Second

// relayTCP copies bytes both ways until the server ends the data connection or, after the end of the client's input, has accepted
// everything and been silent for Config.Linger. It passes no half-close on: a server may close the whole connection then (RFC 6062
// section 5.5), and the bytes in transit are lost.
func (t *Tunnel) relayTCP(local *stream, data net.Conn) {
	below := tcpBelow(data)
	var ended, accepted atomic.Bool // the client's input has ended; the server had everything when the present silence began
	linger := func() {
		if ended.Load() && t.ctx.Err() == nil {
			accepted.Store(unaccepted(below) == 0)
			_ = data.SetReadDeadline(time.Now().Add(t.config.Linger))
		}
	}
	up := func() {
		_ = copyBytes(data, local.in, &t.tcp.upPackets, &t.tcp.upBytes, func() {}) // the other direction ends for the same reason, or goes on
		ended.Store(true)
		linger()
	}
	if t.config.Listen.Kind == KindStdio {
		go up() // a blocked read of a terminal cannot be interrupted
	} else {
		t.tasks.Go(up)
	}
	for left, since := 0, int64(0); ; linger() {
		err := copyBytes(local.out, data, &t.tcp.downPackets, &t.tcp.downBytes, linger)
		if !errors.Is(err, os.ErrDeadlineExceeded) || t.ctx.Err() != nil || accepted.Load() {
			return
		}
		now, n := t.now(), unaccepted(below)
		if n == 0 || n != left {
			left, since = n, now
		} else if now-since >= int64(stuckTime) {
			t.warn("the TURN server does not accept the rest of what a client sent; it is lost", "bytes", n)
			return
		}
	}
}

// unaccepted is how many bytes that were sent the other side's kernel has not acknowledged; 0 if the connection has ended.
func unaccepted(conn *net.TCPConn) (bytes int) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { bytes, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	return bytes
}

// copyBytes copies until one side ends, and calls each after every write. It returns why it ended.
func copyBytes(to io.Writer, from io.Reader, packets, bytes *atomic.Uint64, each func()) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
			packets.Add(1)
			bytes.Add(uint64(n))
			each()
		}
		if err != nil {
			return err
		}
	}
}
