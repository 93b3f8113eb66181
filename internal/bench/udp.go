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
	Timeout  time.Duration // then the request counts as lost and is sent again
	// Warmup requests of each client come first and are not measured.
	Warmup int
	// Latency gets the time from each measured request's first transmission to its answer. The load begins in it at Before.
	Latency *measure.Timeline
	Before  time.Duration
}

// udpLoadResult is what the measured part took.
type udpLoadResult struct {
	Requests int           `json:"requests"`
	Lost     int           `json:"lost"`
	Elapsed  time.Duration `json:"elapsed_ns"`
	CPU      time.Duration `json:"cpu_ns"` // of the load itself
}

type loadClient struct {
	fd   int
	due  time.Time // of the request under way: its first transmission
	sent time.Time // its latest one
	id   uint64
	busy bool
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
		if _, err := l.loop(ctx, epoll, clients, i, i+1, 1, unmeasured); err != nil {
			return result, err
		}
	}
	if _, err := l.loop(ctx, epoll, clients, 0, len(clients), l.Warmup*l.Clients, unmeasured); err != nil {
		return result, err
	}
	if err := begin(); err != nil {
		return result, err
	}
	cpu, start := threadCPU(), time.Now()
	lost, err := l.loop(ctx, epoll, clients, 0, len(clients), l.Requests, func(now time.Time, took time.Duration) {
		l.Latency.Record(l.Before+now.Sub(start), took)
	})
	if err != nil {
		return result, err
	}
	result = udpLoadResult{Requests: l.Requests, Lost: lost, Elapsed: time.Since(start), CPU: threadCPU() - cpu}
	return result, end()
}

// loop runs the clients from first up to end until requests answers came and none is under way. answered is called with the time of each
// answer and how long it took.
func (l *udpLoad) loop(ctx context.Context, epoll int, clients []loadClient, first, end, requests int, answered func(now time.Time, took time.Duration)) (lost int, err error) {
	payload := make([]byte, max(l.Payload, 8))
	buffer := make([]byte, 1<<16)
	events := make([]unix.EpollEvent, 256)
	next := uint64(time.Now().UnixNano()) // answers to an earlier loop's requests are not ours
	send := func(c *loadClient, now time.Time) {
		next++
		if !c.busy {
			c.due = now
		}
		c.id, c.sent, c.busy = next, now, true
		binary.LittleEndian.PutUint64(payload, c.id)
		_, _ = unix.Write(c.fd, payload) // a refused one times out
	}
	left, done, now := requests, 0, time.Now()
	for i := first; i < end; i++ {
		if left > 0 {
			send(&clients[i], now)
			left--
		}
	}
	check := now.Add(l.Timeout / 4)
	for done < requests {
		if ctx.Err() != nil {
			return lost, ctx.Err()
		}
		n, err := unix.EpollWait(epoll, events, int(l.Timeout/4/time.Millisecond)+1)
		if err != nil && err != unix.EINTR {
			return lost, fmt.Errorf("epoll wait: %w", err)
		}
		now = time.Now()
		for _, event := range events[:max(n, 0)] {
			c := &clients[event.Fd]
			length, err := unix.Read(c.fd, buffer)
			if err != nil || length < 8 || !c.busy || binary.LittleEndian.Uint64(buffer) != c.id {
				continue
			}
			c.busy = false
			done++
			answered(now, now.Sub(c.due))
			if left > 0 {
				left--
				send(c, now)
			}
		}
		if now.After(check) {
			check = now.Add(l.Timeout / 4)
			for i := range clients {
				if c := &clients[i]; c.busy && now.Sub(c.sent) > l.Timeout {
					lost++
					if lost > requests+100 {
						return lost, fmt.Errorf("%d of %d requests to %v were lost: nothing answers", lost, requests, l.To)
					}
					send(c, now)
				}
			}
		}
	}
	return lost, nil
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
