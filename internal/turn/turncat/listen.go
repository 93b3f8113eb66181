package turncat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/udpio"
)

// listen opens the socket that clients connect to.
func (t *Tunnel) listen(ctx context.Context) (err error) {
	at := t.config.Listen
	switch at.Kind {
	case KindStdio:
		t.stdio = newStream(os.Stdin, os.Stdout, func() {})
		return nil
	case KindUnix:
		if err := removeStale(at.Path); err != nil {
			return err
		}
		t.listener, err = net.Listen("unix", at.Path)
		return wrapListen(at, err)
	}
	addr := netip.AddrPortFrom(netip.Addr{}, at.Port)
	if at.Host != "" {
		if addr, err = resolve(ctx, "listen address", at.Host, at.Port); err != nil {
			return err
		}
	}
	if at.Kind == KindTCP {
		text := addr.String()
		if !addr.Addr().IsValid() {
			text = fmt.Sprintf(":%d", addr.Port())
		}
		t.listener, err = net.Listen("tcp", text)
		return wrapListen(at, err)
	}
	t.group, err = udpio.Listen(udpio.Config{
		Addr: addr, Sockets: t.config.Workers, Coalesce: true, Batch: readBatch, ReadBuffer: t.config.Buffer, WriteBuffer: t.config.Buffer,
	})
	return err
}

func wrapListen(at Endpoint, err error) error {
	if err != nil {
		return fmt.Errorf("listen on %s: %w", at, err)
	}
	return nil
}

// removeStale removes a socket file that no process listens on, as a killed process leaves it.
func removeStale(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("listen on unix://%s: a file that is no socket has this name", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close() //nolint:errcheck // the connection was only to test whether a process listens
		return fmt.Errorf("listen on unix://%s: another process listens there", path)
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return os.Remove(path)
	}
	return err
}

func (t *Tunnel) closeListener() {
	if t.listener != nil {
		_ = t.listener.Close()
	}
}

// accept starts to accept stream clients.
func (t *Tunnel) accept() {
	switch {
	case t.stdio != nil:
		t.admit()
		t.serve(t.stdio)
	case t.listener != nil:
		t.tasks.Go(t.acceptAll)
	}
}

func (t *Tunnel) acceptAll() {
	for t.ctx.Err() == nil {
		conn, err := t.listener.Accept()
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			t.warn("a connection not accepted", "error", err) // out of descriptors, for instance
			select {
			case <-t.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		if !t.admit() {
			t.tcp.full.Add(1)
			t.warn("as many clients as --max-clients allows: further connections are closed", "event", "connections_beyond_max_clients", "clients", t.config.MaxClients)
			conn.Close() //nolint:errcheck // refused
			continue
		}
		t.serve(streamOf(conn))
	}
}

// serve serves an admitted stream.
func (t *Tunnel) serve(s *stream) {
	if t.config.Peer.Kind == KindTCP {
		t.tasks.Go(func() { t.serveTCP(s) })
		return
	}
	t.workers[0].inbox.Put(entry{notice: arrived, stream: s})
}
