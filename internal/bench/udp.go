package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Echo answers every UDP datagram at an address with itself until ctx ends: one thread, one datagram a call, the
// plainest there is.
func Echo(ctx context.Context, at netip.AddrPort) error {
	fd, err := unix.Socket(family(at), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return fmt.Errorf("bind %v: %w", at, err)
	}
	// A read that ends now and then sees the end of ctx.
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200000})
	buffer := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, from, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			if err == unix.EAGAIN || err == unix.EINTR || err == unix.ECONNREFUSED {
				continue
			}
			return fmt.Errorf("receive on %v: %w", at, err)
		}
		_ = unix.Sendto(fd, buffer[:n], 0, from) // a client that is gone is no matter of ours
	}
	return nil
}

// udpLoad is a closed loop: each client has one request under way and sends the next when its answer came.
type udpLoad struct {
	To       netip.AddrPort
	Clients  int
	Requests int           // in all
	Payload  int           // bytes, at least 8
	Timeout  time.Duration // then the request is sent again; the second time after twice that, at most after eight times
	// Warmup requests of each client come first and are not measured.
	Warmup int
	// Latency gets the time from each measured request's first transmission to its answer. The load begins in it at Before.
	Latency *measure.Timeline
	Before  time.Duration
}

// udpLoadResult is what the measured part took.
type udpLoadResult struct {
	Requests int           `json:"requests"`
	Lost     int           `json:"lost"` // datagrams without an answer: a late answer is one
	Elapsed  time.Duration `json:"elapsed_ns"`
	CPU      time.Duration `json:"cpu_ns"` // of the load itself
}

type loadClient struct {
	fd   int
	due  time.Time // of the request under way: its first transmission
	sent time.Time // its latest one
	id   uint64    // the same in each transmission of a request
	busy bool
	// repeats is how often the request under way was sent again.
	repeats int
}

// silence is after how many time-outs without any answer the load ends: nothing answers.
const silence = 25

// udpLoop is one pass of the load over its clients.
type udpLoop struct {
	*udpLoad
	epoll   int
	clients []loadClient
	payload []byte
	buffer  []byte
	first   uint64 // answers to an earlier loop's requests have smaller ids
	next    uint64
	left    int // requests to begin
	done    int // answered ones
	// repeated transmissions, and answers to requests that an earlier answer had ended
	repeated, late int
	answered       func(now time.Time, took time.Duration)
}

// Run opens the clients' sockets, warms up, calls begin, runs the load and calls end.
func (l *udpLoad) Run(ctx context.Context, begin, end func() error) (udpLoadResult, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var result udpLoadResult
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return result, fmt.Errorf("epoll: %w", err)
	}
	defer unix.Close(epoll)
	clients := make([]loadClient, l.Clients)
	for i := range clients {
		fd, err := unix.Socket(family(l.To), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return result, fmt.Errorf("client %d: open a socket: %w", i, err)
		}
		defer unix.Close(fd)
		clients[i].fd = fd
		if err := unix.Connect(fd, sockaddr(l.To)); err != nil {
			return result, fmt.Errorf("client %d: connect to %v: %w", i, l.To, err)
		}
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
			return result, fmt.Errorf("client %d: %w", i, err)
		}
	}
	unmeasured := func(time.Time, time.Duration) {}
	// One client after the other: socat forks for each, and loses what comes meanwhile.
	for i := range clients {
		if err := l.loop(epoll, clients, 1, unmeasured).run(ctx, i, i+1); err != nil {
			return result, err
		}
	}
	if err := l.loop(epoll, clients, l.Warmup*l.Clients, unmeasured).run(ctx, 0, len(clients)); err != nil {
		return result, err
	}
	if err := begin(); err != nil {
		return result, err
	}
	cpu, start := threadCPU(), time.Now()
	measured := l.loop(epoll, clients, l.Requests, func(now time.Time, took time.Duration) {
		l.Latency.Record(l.Before+now.Sub(start), took)
	})
	if err := measured.run(ctx, 0, len(clients)); err != nil {
		return result, err
	}
	result = udpLoadResult{Requests: l.Requests, Elapsed: time.Since(start), CPU: threadCPU() - cpu}
	if err := end(); err != nil {
		return result, err
	}
	result.Lost, err = measured.lost(ctx)
	return result, err
}

// loop prepares a pass of so many requests. answered is called with the time of each answer and how long it took.
func (l *udpLoad) loop(epoll int, clients []loadClient, requests int, answered func(now time.Time, took time.Duration)) *udpLoop {
	first := uint64(time.Now().UnixNano())
	return &udpLoop{
		udpLoad: l, epoll: epoll, clients: clients, payload: make([]byte, max(l.Payload, 8)), buffer: make([]byte, 1<<16),
		first: first, next: first, left: requests, answered: answered,
	}
}

func (l *udpLoop) begin(c *loadClient, now time.Time) {
	l.left--
	l.next++
	c.id, c.due, c.busy, c.repeats = l.next, now, true, 0
	l.send(c, now)
}

func (l *udpLoop) send(c *loadClient, now time.Time) {
	c.sent = now
	binary.LittleEndian.PutUint64(l.payload, c.id)
	_, _ = unix.Write(c.fd, l.payload) // a refused one times out
}

// run lets the clients from first up to end send their requests until all are answered.
func (l *udpLoop) run(ctx context.Context, first, end int) error {
	requests, now := l.left, time.Now()
	for i := first; i < end && l.left > 0; i++ {
		l.begin(&l.clients[i], now)
	}
	check, latest := now.Add(l.Timeout/4), now
	for l.done < requests {
		before := l.done
		var err error
		if now, err = l.poll(ctx); err != nil {
			return err
		}
		if l.done > before {
			latest = now
		}
		if !now.After(check) {
			continue
		}
		check = now.Add(l.Timeout / 4)
		if now.Sub(latest) > silence*l.Timeout {
			return fmt.Errorf("%d of %d requests to %v have an answer, and for %v none has come: nothing answers", l.done, requests, l.To, silence*l.Timeout)
		}
		l.repeat(first, end, now)
	}
	return nil
}

// repeat sends again what has waited too long.
func (l *udpLoop) repeat(first, end int, now time.Time) {
	for i := first; i < end; i++ {
		if c := &l.clients[i]; c.busy && now.Sub(c.sent) > l.Timeout<<min(c.repeats, 3) {
			c.repeats++
			l.repeated++
			l.send(c, now)
		}
	}
}

// poll waits for answers, for a quarter of the time-out at most.
func (l *udpLoop) poll(ctx context.Context) (now time.Time, err error) {
	if ctx.Err() != nil {
		return now, ctx.Err()
	}
	var events [256]unix.EpollEvent
	n, err := unix.EpollWait(l.epoll, events[:], int(l.Timeout/4/time.Millisecond)+1)
	if err != nil && err != unix.EINTR {
		return now, fmt.Errorf("epoll wait: %w", err)
	}
	now = time.Now()
	for _, event := range events[:max(n, 0)] {
		c := &l.clients[event.Fd]
		length, err := unix.Read(c.fd, l.buffer)
		if err != nil || length < 8 {
			continue
		}
		switch id := binary.LittleEndian.Uint64(l.buffer); {
		case c.busy && id == c.id:
			c.busy = false
			l.done++
			l.answered(now, now.Sub(c.due))
			if l.left > 0 {
				l.begin(c, now)
			}
		case id > l.first && id <= l.next:
			l.late++
		}
	}
	return now, nil
}

// lost waits for answers that are still under way, and returns how many datagrams had none.
func (l *udpLoop) lost(ctx context.Context) (int, error) {
	for end := time.Now().Add(l.Timeout); l.late < l.repeated; {
		before := l.late
		now, err := l.poll(ctx)
		if err != nil {
			return 0, err
		}
		if l.late > before {
			end = now.Add(l.Timeout)
		}
		if now.After(end) {
			break
		}
	}
	return max(l.repeated-l.late, 0), nil
}

func threadCPU() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func family(a netip.AddrPort) int {
	if a.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
