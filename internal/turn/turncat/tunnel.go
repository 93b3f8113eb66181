package turncat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/udpio"
)

// Tunnel relays clients to one peer through a TURN server.
type Tunnel struct {
	config   Config
	peer     netip.AddrPort
	server   atomic.Pointer[netip.AddrPort]
	now      func() int64
	group    *udpio.Group // KindUDP
	listener net.Listener // KindTCP, KindUnix
	stdio    *stream      // KindStdio
	workers  []*worker
	tcp      counters // of the connections to a TCP peer
	ctx      context.Context
	done     context.CancelFunc
	tasks    sync.WaitGroup // goroutines other than the workers
	admitted atomic.Int64
	ever     atomic.Uint64
	peak     atomic.Int64
	looking  atomic.Bool
	warnings limiter
}

// Open checks the configuration, looks names up and opens the listener. It sends nothing to the server before Run.
func Open(ctx context.Context, config Config) (*Tunnel, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	t := &Tunnel{config: config, now: func() int64 { return time.Now().UnixNano() }}
	t.warnings.log = config.Log
	peer, err := resolve(ctx, "peer", config.Peer.Host, config.Peer.Port)
	if err != nil {
		return nil, err
	}
	server, err := resolve(ctx, "TURN server", config.Server.Host, config.Server.Port)
	if err != nil {
		return nil, err
	}
	t.peer = peer
	t.server.Store(&server)
	if err := t.listen(ctx); err != nil {
		return nil, err
	}
	workers := 1
	if t.group != nil {
		workers = t.group.Len()
	}
	for i := range workers {
		var near *udpio.Conn
		if t.group != nil {
			near = t.group.Conn(i)
		}
		w, err := newWorker(t, near)
		if err != nil {
			t.closeListener()
			return nil, err
		}
		t.workers = append(t.workers, w)
	}
	return t, nil
}

// Addr is the address that clients connect to, with the port that the kernel chose.
func (t *Tunnel) Addr() string {
	switch {
	case t.group != nil:
		return "udp://" + t.group.LocalAddr().String()
	case t.listener != nil && t.config.Listen.Kind == KindTCP:
		return "tcp://" + t.listener.Addr().String()
	}
	return t.config.Listen.String()
}

// Peer is the peer's address.
func (t *Tunnel) Peer() netip.AddrPort { return t.peer }

// Stats returns the counters. Any goroutine may call it.
func (t *Tunnel) Stats() Stats {
	s := Stats{Clients: int(t.admitted.Load()), ClientsEver: t.ever.Load(), PeakClients: int(t.peak.Load())}
	for _, w := range t.workers {
		w.counters.addTo(&s)
	}
	t.tcp.addTo(&s)
	if t.group != nil {
		s.Overflowed = t.group.Overflowed()
	}
	return s
}

// Run relays until ctx ends, or the input of KindStdio ends, or the first check of the server fails; the error is a
// *Refusal if the server refused. Then it releases every allocation, which takes three seconds at most. It is called
// once.
func (t *Tunnel) Run(ctx context.Context) error {
	t.ctx, t.done = context.WithCancel(ctx)
	defer t.done()
	failures := make(chan error, len(t.workers)+1)
	var workers sync.WaitGroup
	for _, w := range t.workers {
		workers.Go(func() {
			if err := w.run(); err != nil {
				failures <- err
				t.done()
			}
		})
	}
	err := t.check()
	if err == nil {
		for _, w := range t.workers {
			w.inbox.Put(entry{notice: begin})
		}
		t.accept()
		<-t.ctx.Done()
	}
	t.done()
	t.closeListener()
	for _, w := range t.workers {
		w.inbox.Put(entry{notice: halt})
	}
	workers.Wait()
	t.endStreams()
	select {
	case worse := <-failures:
		err = errors.Join(err, worse)
	default:
	}
	return err
}

// endStreams waits, for a limited time, until streams have written what is queued.
func (t *Tunnel) endStreams() {
	ended := make(chan struct{})
	go func() {
		t.tasks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Second):
		t.config.Log.Debug("a stream does not take its last bytes")
	}
}

// check tests the server with an allocation and the peer's channel, so that a permanent error is reported at once.
func (t *Tunnel) check() error {
	if t.config.NoCheck {
		return nil
	}
	if t.config.Peer.Kind == KindTCP {
		return t.checkTCP()
	}
	result := make(chan error, 1)
	t.workers[0].inbox.Put(entry{notice: arrived, probe: result})
	select {
	case err := <-result:
		return t.judge(err)
	case <-t.ctx.Done():
	}
	return nil
}

// judge decides whether a failed check ends the tunnel: it does not if the error may be temporary.
func (t *Tunnel) judge(err error) error {
	var refusal *Refusal
	switch {
	case err == nil || t.ctx.Err() != nil:
		return nil
	case errors.As(err, &refusal) && (refusal.Code == 486 || refusal.Code == 508):
		t.config.Log.Warn("the server has no room now", "server", t.config.Server.String(), "error", err)
		return nil
	}
	return fmt.Errorf("%s: %w", t.config.Server, err)
}

func (t *Tunnel) serverAddr() netip.AddrPort { return *t.server.Load() }

// lookAgain looks the server's name up in a goroutine of its own, because its address may have changed.
func (t *Tunnel) lookAgain() {
	if _, err := netip.ParseAddr(t.config.Server.Host); err == nil || !t.looking.CompareAndSwap(false, true) {
		return
	}
	t.tasks.Go(func() {
		defer t.looking.Store(false)
		if to, err := resolve(t.ctx, "TURN server", t.config.Server.Host, t.config.Server.Port); err == nil {
			t.server.Store(&to)
		}
	})
}

// admit counts a new client. It returns false if there are too many.
func (t *Tunnel) admit() bool {
	n := t.admitted.Add(1)
	if n > int64(t.config.MaxClients) {
		t.admitted.Add(-1)
		return false
	}
	t.ever.Add(1)
	for {
		peak := t.peak.Load()
		if n <= peak || t.peak.CompareAndSwap(peak, n) {
			return true
		}
	}
}

func (t *Tunnel) leave() { t.admitted.Add(-1) }

func (t *Tunnel) finish() { t.done() }

// gather waits while datagrams accumulate. The goroutine keeps its thread during the wait, because a wake-up through
// the Go scheduler would cost more than the larger batch saves.
func (t *Tunnel) gather() {
	pause := unix.NsecToTimespec(int64(t.config.Gather))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
}

func (t *Tunnel) warn(text string, args ...any) { t.warnings.warn(t.now(), text, args) }

func (t *Tunnel) serverBack(relay netip.AddrPort) {
	t.warnings.again(func(log *slog.Logger) { log.Info("session with the TURN server again", "relay", relay) })
}

// limiter allows one warning of each kind in ten seconds.
type limiter struct {
	log *slog.Logger

	mu    sync.Mutex
	last  map[string]int64
	quiet map[string]int
}

const warnEvery = 10 * int64(time.Second)

func (l *limiter) warn(now int64, text string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last, l.quiet = map[string]int64{}, map[string]int{}
	}
	if at, ok := l.last[text]; ok && now-at < warnEvery {
		l.quiet[text]++
		return
	}
	if n := l.quiet[text]; n > 0 {
		args = append(args, "similar", n)
	}
	l.last[text], l.quiet[text] = now, 0
	l.log.Warn(text, args...)
}

// again reports once that a problem has ended.
func (l *limiter) again(report func(*slog.Logger)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) > 0 {
		clear(l.last)
		report(l.log)
	}
}
