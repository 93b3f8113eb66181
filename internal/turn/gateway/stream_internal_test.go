package gateway

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-lb/weir/internal/turn/allocation"
	"github.com/weir-lb/weir/internal/udpio"
	"github.com/weir-lb/weir/internal/workers"
)

// pipeConn is one connection of a TCP listener over a pipe, whose worker is the test.
func pipeConn(t *testing.T) (*streamConn, net.Conn) {
	t.Helper()
	poller, err := udpio.NewPoller(1)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{streams: newStreams(LimitConfig{Connections: 64, Handshakes: 16})}
	g.group = workers.New[*worker](&g.mu, workers.Limits{})
	w := &worker{gateway: g, poller: poller}
	w.inbox = g.group.Add(w, poller.Wake)
	g.workers = []*worker{w}
	s := &streamServer{gateway: g, shared: g.streams, listener: &listener{transport: allocation.TCP}, conns: map[any]struct{}{}}
	c := s.newConn(netip.MustParseAddrPort("192.0.2.1:1000"), netip.MustParseAddrPort("192.0.2.2:3478"))
	ours, theirs := net.Pipe()
	c.raw, c.conn = ours, ours
	if !s.add(c) {
		t.Fatal("the listener is closed")
	}
	go func() {
		defer s.remove(c, c.connEntry)
		if c.enterAsGuest() {
			c.serveGuest()
		}
	}()
	t.Cleanup(func() {
		_ = theirs.Close()
		s.wait.Wait()
		poller.Close()
		if n := g.streams.guests.size() + int(s.listener.connections.Load()); n != 0 {
			t.Errorf("%d connections are counted after the last one", n)
		}
	})
	return c, theirs
}

func count(c *streamConn, r streamReason) uint64 { return c.server.counts[r].Load() }

// TestGuestTime: a client has guestTime for its allocation, however it drips its bytes; with one it may stay, and without
// one again it has guestTime again.
func TestGuestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := pipeConn(t)
		begin := time.Now()
		frame := stunFrame(1000)
		for i := range frame { // slow loris
			_ = client.SetWriteDeadline(time.Now().Add(time.Second))
			if _, err := client.Write(frame[i : i+1]); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if lasted := time.Since(begin); lasted < guestTime || lasted > guestTime+2*time.Second {
			t.Errorf("cut after %v", lasted)
		}
		synctest.Wait()
		if count(c, guestTimeout) != 1 {
			t.Error("the time-out is not counted")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, client := pipeConn(t)
		synctest.Wait()
		c.allocated(true)
		time.Sleep(100 * guestTime)
		if c.isEnding() || c.server.shared.guests.size() != 0 {
			t.Error("a client with an allocation was cut, or counts as a guest")
		}
		c.allocated(false)
		begin := time.Now()
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(begin) != guestTime {
			t.Errorf("after its allocation a client is cut after %v: %v", time.Since(begin), err)
		}
		synctest.Wait()
	})
}

// TestSlowClient: user data is dropped when the client does not read, answers are kept until it is cut.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipeConn(t)
		c.allocated(true)
		data, answer := channelFrame(0x4000, make([]byte, 1200)), stunFrame(80)
		taken := 0
		for range 1000 {
			if c.deliver(data[:4], data[4:]) {
				taken++
			}
			c.flush()
		}
		if taken*len(data) > queueBytes || taken*len(data) < queueBytes-2*len(data) {
			t.Errorf("%d bytes were taken", taken*len(data))
		}
		if !c.deliver(answer, nil) {
			t.Error("no room for an answer")
		}
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		if count(c, clientSlow) != 1 {
			t.Error("a client that reads nothing is not cut")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipeConn(t)
		c.allocated(true)
		answer, kept := stunFrame(200), 0
		for c.deliver(answer, nil) {
			c.flush()
			kept++
		}
		synctest.Wait()
		if limit := (queueBytes + queueAnswerBytes) / len(answer); kept > limit || count(c, clientSlow) != 1 {
			t.Errorf("%d answers were kept of at most %d, cut %d", kept, limit, count(c, clientSlow))
		}
	})
}

// TestPacer: a burst goes at once, the rest at the rate, whatever the pieces.
func TestPacer(t *testing.T) {
	var p pacer
	now := 1000 * time.Second
	if p.wait(1<<30, 0, 0, now) != 0 {
		t.Error("no rate, and a wait")
	}
	p = pacer{}
	begin, at := now, now
	for range 100 {
		at += p.wait(1000, 10000, 20000, at)
	}
	if took := at - begin; took < 7900*time.Millisecond || took > 8100*time.Millisecond {
		t.Errorf("100 kB at 10 kB/s after a burst of 20 kB took %v, want 8 s", took)
	}
}
