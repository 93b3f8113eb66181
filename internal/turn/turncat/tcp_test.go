package turncat

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slowConn is a data connection that reports each wait for data which ended by its deadline.
type slowConn struct {
	*net.TCPConn
	silent chan struct{}
}

func (c *slowConn) NetConn() net.Conn { return c.TCPConn }

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		select {
		case c.silent <- struct{}{}:
		default:
		}
	}
	return n, err
}

// slowServer is a tunnel's data connection to a server with a small receive buffer, and the server's end of it.
func slowServer(t *testing.T) (near *slowConn, server net.Conn) {
	t.Helper()
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }); e != nil {
			return e
		}
		return err
	}}
	l, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	near = &slowConn{conn.(*net.TCPConn), make(chan struct{}, 100)}
	if err := near.SetWriteBuffer(1 << 20); err != nil { // for all that the client sends
		t.Fatal(err)
	}
	return near, server
}

// relayed is a client of a tunnel to a TCP peer that has sent data and ended its input; ended is closed when the tunnel ends it.
func relayed(t *testing.T, near net.Conn, data []byte) (tunnel *Tunnel, out *lockedBuffer, log *lockedBuffer, start func() (ended chan struct{})) {
	t.Helper()
	out, log = new(lockedBuffer), new(lockedBuffer)
	tunnel = &Tunnel{config: Config{Linger: 20 * time.Millisecond}, now: func() int64 { return time.Now().UnixNano() }}
	tunnel.warnings.log = slog.New(slog.NewTextHandler(log, nil))
	tunnel.ctx, tunnel.done = context.WithCancel(t.Context())
	start = func() chan struct{} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			tunnel.relayTCP(newStream(bytes.NewReader(data), out, func() {}), near)
			_ = near.Close()
		}()
		t.Cleanup(func() {
			tunnel.done()
			<-ended
			tunnel.tasks.Wait()
		})
		return ended
	}
	return tunnel, out, log, start
}

// A server that accepts nothing for longer than Config.Linger loses nothing: the silence counts from when it has everything.
func TestTCPServerThatIsSlow(t *testing.T) {
	near, server := slowServer(t)
	data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<13) // 128 KiB
	_, out, _, start := relayed(t, near, data)
	ended := start()
	for range 3 {
		select {
		case <-near.silent:
		case <-ended:
			t.Fatal("the tunnel ended the connection before the server had everything")
		}
	}
	if _, err := io.WriteString(server, "the answer"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(data))
	server.SetDeadline(time.Now().Add(time.Minute))
	if n, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d of %d bytes, %v", n, len(data), err)
	}
	<-ended
	if out.String() != "the answer" {
		t.Errorf("the client has %q", out)
	}
}

// A server that accepts nothing any more does not hold a client for ever, and the log says what is lost.
func TestTCPServerThatIsStuck(t *testing.T) {
	near, _ := slowServer(t)
	tunnel, _, log, start := relayed(t, near, make([]byte, 1<<17))
	var now int64 = 1
	tunnel.now = func() int64 {
		now += int64(10 * time.Second)
		return now
	}
	<-start()
	if !strings.Contains(log.String(), "does not accept the rest") || len(near.silent) < 4 {
		t.Errorf("after %d waits: %s", len(near.silent), log)
	}
}
