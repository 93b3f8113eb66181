package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/udpio"
)

// Load is a set of clients and their sink. Run, Refresh and Close belong to one goroutine.
type Load struct {
	config  Config
	base    time.Time // all times in datagrams are since then
	clients []*client
	sinks   *udpio.Group
	sink    *udpio.Conn // nil: the far end is elsewhere
	poller  *udpio.Poller
	runs    uint64

	from []atomic.Pointer[netip.AddrPort] // address at which the far end sees each client; nil: not known yet
	run  atomic.Pointer[run]

	mu           sync.Mutex
	queue        []func(now time.Time) // functions for the receiver to run
	late         atomic.Uint64         // datagrams of phases that are over
	reportedLate uint64                // datagrams of late that were reported
	ended        chan struct{}
	ending       atomic.Bool
}

// Open opens the sockets, allocates, binds a channel for each client, and verifies that one datagram of each arrives.
// An error names the client and the reason, with the server's STUN error code if it sent one.
func Open(ctx context.Context, config Config) (_ *Load, err error) {
	if config, err = config.withDefaults(); err != nil {
		return nil, err
	}
	l := &Load{config: config, base: time.Now(), ended: make(chan struct{})}
	close(l.ended) // no receiver yet
	defer func() {
		if err != nil {
			_ = l.Close() // the first error is returned
		}
	}()
	if l.poller, err = udpio.NewPoller(256); err != nil {
		return nil, err
	}
	if err := l.openSink(); err != nil {
		return nil, err
	}
	l.from = make([]atomic.Pointer[netip.AddrPort], config.Clients)
	for i := range config.Clients {
		c, err := openClient(&l.config, i)
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, c)
		if config.Server.IsValid() {
			if err := c.do(ctx, allocate, bind); err != nil {
				return nil, err
			}
		}
		if err := c.link.watch(l.poller, uint64(i)); err != nil {
			return nil, err
		}
	}
	l.ended = make(chan struct{})
	go l.receive()
	return l, l.probe(ctx)
}

func (l *Load) openSink() (err error) {
	if l.config.Peer.IsValid() {
		return nil
	}
	open := func() (err error) {
		l.sinks, err = udpio.Listen(udpio.Config{
			Addr: l.config.Sink, Batch: maxBurst, ReadBuffer: sinkRoom, WriteBuffer: clientRoom,
			NoSegment: l.config.NoSegment, Coalesce: !l.config.NoCoalesce,
		})
		return err
	}
	if l.config.SinkIn != nil {
		err = l.config.SinkIn(open)
	} else {
		err = open()
	}
	if err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	l.sink = l.sinks.Conn(0)
	l.config.Sink = l.sinks.LocalAddr()
	return l.poller.AddConn(l.sink, sinkToken)
}

// probe sends datagrams until one of each client arrived at the far end.
func (l *Load) probe(ctx context.Context) error {
	const pause = 50 * time.Millisecond
	messages := l.batch(1)
	end := time.Now().Add(l.config.Timeout)
	for {
		missing := -1
		for i, c := range l.clients {
			if l.from[i].Load() == nil {
				missing = i
				l.fill(messages, header{conn: uint16(i), flags: flagProbe, sent: l.now()}, HeaderSize, true)
				c.link.send(messages)
			}
		}
		if missing < 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("client %d: nothing it sends to %v arrives at %v", missing, l.config.target(missing), l.config.destination())
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func (l *Load) now() int64 { return int64(time.Since(l.base)) }

// Sink is the far end's address.
func (l *Load) Sink() netip.AddrPort { return l.config.destination() }

// Relays are the relay addresses in the order of the clients; nil for plain UDP.
func (l *Load) Relays() (list []netip.AddrPort) {
	if !l.config.Server.IsValid() {
		return nil
	}
	for _, c := range l.clients {
		list = append(list, c.relay)
	}
	return list
}

// Refresh refreshes every allocation and channel now and returns how many clients still have their allocation. The
// error is the first refusal.
func (l *Load) Refresh(ctx context.Context) (alive int, err error) {
	var first error
	if err := l.requests(ctx, refresh, bind); err != nil {
		return 0, err
	}
	err = l.do(func(time.Time) {
		for _, c := range l.clients {
			if c.err == nil {
				alive++
			} else if first == nil {
				first = c.err
			}
		}
	})
	return alive, errors.Join(first, err)
}

// requests makes every client with an allocation send the requests, and waits for all of them.
func (l *Load) requests(ctx context.Context, steps ...step) error {
	if !l.config.Server.IsValid() {
		return nil
	}
	err := l.do(func(now time.Time) {
		for _, c := range l.clients {
			if c.err == nil {
				c.note(c.begin(now, slices.Clone(steps)...))
			}
		}
	})
	for busy := true; busy && err == nil; {
		busy = false
		err = l.do(func(time.Time) {
			busy = slices.ContainsFunc(l.clients, func(c *client) bool { return c.step != idle })
		})
		if busy && err == nil {
			err = sleep(ctx, time.Millisecond)
		}
	}
	return err
}

// do runs f on the receiver's goroutine and waits for it.
func (l *Load) do(f func(now time.Time)) error {
	done := make(chan struct{})
	l.mu.Lock()
	l.queue = append(l.queue, func(now time.Time) { f(now); close(done) })
	l.mu.Unlock()
	l.poller.Wake()
	select {
	case <-done:
		return nil
	case <-l.ended:
		return errors.New("the load is closed")
	}
}

// Close releases the allocations (Refresh with lifetime 0) and closes the sockets.
func (l *Load) Close() error {
	var errs []error
	select {
	case <-l.ended:
		l.releaseAlone()
	default:
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		_ = l.requests(ctx, release) // an allocation that is not given back expires
		cancel()
		l.ending.Store(true)
		l.poller.Wake()
		<-l.ended
	}
	for _, c := range l.clients {
		errs = append(errs, c.link.close())
	}
	if l.sinks != nil {
		errs = append(errs, l.sinks.Close())
	}
	if l.poller != nil {
		l.poller.Close()
	}
	l.clients, l.sinks, l.poller = nil, nil, nil
	return errors.Join(errs...)
}

const closeTimeout = 2 * time.Second

// releaseAlone releases the allocations of a Load whose Open failed: each client sends a Refresh with lifetime 0,
// without waiting for the answer.
func (l *Load) releaseAlone() {
	for _, c := range l.clients {
		if c.relay.IsValid() {
			_ = c.begin(time.Now(), release) // an allocation that is not given back expires
		}
	}
}
