package redundancy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// window is how many frames may be sent without an acknowledgement: at most 16 MiB.
const window = 256

// send keeps a peer up to date until ctx ends.
func (s *Sync) send(ctx context.Context, settings *lb.Sync, p *peer, secured *tls.Config) {
	for {
		err := s.sendOnce(ctx, settings, p, secured)
		s.mu.Lock()
		was := p.out.Connected
		p.out.Connected, p.out.Complete, p.out.Since = false, false, nil
		if was {
			p.out.Losses++
		}
		if ctx.Err() == nil {
			p.out.Error = err.Error()
		}
		s.mu.Unlock()
		if ctx.Err() == nil && was {
			s.log.Warn("a peer is not sent the state of flows any more", "event", "sync_peer_lost", "peer", p.address.String(), "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryEvery):
		}
	}
}

// sendOnce is one connection.
func (s *Sync) sendOnce(ctx context.Context, settings *lb.Sync, p *peer, secured *tls.Config) error {
	dialer := net.Dialer{Timeout: handshakeTimeout}
	if !settings.Listen.Addr().IsUnspecified() {
		dialer.LocalAddr = &net.TCPAddr{IP: settings.Listen.Addr().AsSlice()}
	}
	raw, err := dialer.DialContext(ctx, "tcp", p.address.String())
	if err != nil {
		return err
	}
	conn := tls.Client(raw, secured)
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	defer raw.Close()
	if err := handshake(ctx, conn); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	if _, err := conn.Write(appendHello(nil, s.instance)); err != nil {
		return err
	}
	buffer := make([]byte, maxFrame)
	k, body, err := readFrame(conn, buffer)
	if err != nil || k != kindHello {
		return fmt.Errorf("no greeting; has the peer the same key, and this balancer as a peer: %w", errors.Join(err, ctx.Err()))
	}
	instance, err := readHello(body)
	if err != nil {
		return err
	}
	if instance == s.instance {
		return fmt.Errorf("%s is this balancer; write the address of another one", p.address)
	}
	conn.SetDeadline(time.Time{})
	now := time.Now()
	s.mu.Lock()
	p.out.Connected, p.out.Since, p.out.Error = true, &now, ""
	s.mu.Unlock()
	s.log.Info("a peer is sent the state of flows", "event", "sync_peer_connected", "peer", p.address.String())
	l := &link{s: s, p: p, conn: conn, numbers: map[backend]uint16{}, room: make(chan struct{}, window), gone: make(chan struct{})}
	go l.acknowledged(buffer)
	err = l.run(ctx)
	raw.Close()
	<-l.gone
	l.countLost()
	return errors.Join(err, l.failure)
}

// link is one connection to a peer.
type link struct {
	s       *Sync
	p       *peer
	conn    net.Conn
	numbers map[backend]uint16 // that the peer has
	buffer  []byte
	last    time.Time // something was sent
	begun   time.Time // of the look at the table
	room    chan struct{}
	gone    chan struct{} // closed when nothing is acknowledged any more
	failure error         // why, after that
	total   uint64        // refused

	mu       sync.Mutex // guards the rest
	sequence uint64
	bulk     uint64 // sequence number of the mark; 0: not sent yet
	waiting  []sentFrame
}

// sentFrame waits for its acknowledgement.
type sentFrame struct {
	sequence, flows uint64
	begun           time.Time
}

// run looks at the table again and again, and sends what it finds.
func (l *link) run(ctx context.Context) error {
	follow, marked := l.s.options.Table.FollowFlows(), false
	for {
		l.begun = time.Now()
		var err error
		follow(l.s.skip, func(changes []flow.Change) bool {
			err = l.changes(changes)
			return err == nil
		})
		if err == nil && !marked {
			err, marked = l.frame(kindBulkEnd, nil, 0), true
		}
		if err == nil && time.Since(l.last) >= aliveEvery {
			err = l.frame(kindAlive, nil, 0)
		}
		if err != nil {
			return err
		}
		interval := min(max(20*time.Since(l.begun), minInterval), maxInterval)
		l.s.interval.Store(int64(interval))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.gone:
			return nil // failure says why
		case <-time.After(interval):
		}
	}
}

// changes sends changes, in their order.
func (l *link) changes(all []flow.Change) error {
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Ended == all[0].Ended && (all[0].Ended && n < batchEnded || n < batchFlows) {
			n++
		}
		var err error
		if all[0].Ended {
			err = l.ended(all[:n])
		} else {
			err = l.flows(all[:n])
		}
		if err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

func (l *link) ended(changes []flow.Change) error {
	err := l.frame(kindEnded, func(b []byte) []byte {
		for i := range changes {
			b = append(b, byte(changes[i].Number>>24), byte(changes[i].Number>>16), byte(changes[i].Number>>8), byte(changes[i].Number))
		}
		return b
	}, 0)
	l.s.mu.Lock()
	l.p.out.Ended += uint64(len(changes))
	l.s.mu.Unlock()
	return err
}

func (l *link) flows(changes []flow.Change) error {
	l.buffer = l.buffer[:0]
	for i := range changes {
		f := &changes[i].Flow
		of := backend{f.Service, f.Backend, f.Server}
		if _, known := l.numbers[of]; known {
			continue
		}
		if len(l.numbers) == 1<<16 {
			return errors.New("more than 65536 backends on one connection; it begins again")
		}
		l.numbers[of] = uint16(len(l.numbers))
		l.buffer = appendBackend(l.buffer, l.numbers[of], of)
	}
	if len(l.buffer) > 0 {
		if err := l.write(); err != nil {
			return err
		}
	}
	err := l.frame(kindFlows, func(b []byte) []byte {
		for i := range changes {
			f := &changes[i].Flow
			b = appendRecord(b, &record{number: changes[i].Number, backend: l.numbers[backend{f.Service, f.Backend, f.Server}], flow: *f})
		}
		return b
	}, uint64(len(changes)))
	l.s.mu.Lock()
	l.p.out.Sent += uint64(len(changes))
	l.s.mu.Unlock()
	return err
}

// frame sends a frame with a sequence number, once there is room in the window.
func (l *link) frame(k kind, body func([]byte) []byte, flows uint64) error {
	timeout := time.NewTimer(silence)
	defer timeout.Stop()
	select {
	case l.room <- struct{}{}:
	case <-l.gone:
		return errors.New("the connection has ended")
	case <-timeout.C:
		return fmt.Errorf("the peer has acknowledged nothing for %s", silence)
	}
	l.mu.Lock()
	l.sequence++
	sequence := l.sequence
	if k == kindBulkEnd {
		l.bulk = sequence
	}
	l.waiting = append(l.waiting, sentFrame{sequence, flows, l.begun})
	l.mu.Unlock()
	l.buffer = appendNumbers(l.buffer[:0], k, sequence)
	if body != nil {
		l.buffer = finish(body(l.buffer), 0)
	}
	return l.write()
}

func (l *link) write() error {
	l.conn.SetWriteDeadline(time.Now().Add(silence))
	_, err := l.conn.Write(l.buffer)
	l.last = time.Now()
	return err
}

// acknowledged reads acknowledgements until the connection ends.
func (l *link) acknowledged(buffer []byte) {
	defer close(l.gone)
	for {
		l.conn.SetReadDeadline(time.Now().Add(silence))
		k, body, err := readFrame(l.conn, buffer)
		if err == nil && (k != kindAck || len(body) != 16) {
			err = errFrame
		}
		if err != nil {
			l.failure = err
			return
		}
		sequence, rest, _ := readNumber(body)
		refused, _, _ := readNumber(rest)
		l.acknowledge(sequence, refused)
	}
}

func (l *link) acknowledge(sequence, refused uint64) {
	now := time.Now()
	var lag time.Duration
	l.mu.Lock()
	for len(l.waiting) > 0 && l.waiting[0].sequence <= sequence {
		lag = now.Sub(l.waiting[0].begun)
		l.waiting = l.waiting[1:]
		<-l.room
	}
	bulk := l.bulk > 0 && sequence >= l.bulk
	l.mu.Unlock()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if refused > l.total {
		l.p.out.Refused += refused - l.total
		l.total = refused
	}
	if lag > 0 {
		l.p.out.Lag = lag.Seconds()
	}
	l.p.out.Complete = l.p.out.Complete || bulk
}

// countLost counts what was sent and not acknowledged.
func (l *link) countLost() {
	l.mu.Lock()
	lost := uint64(0)
	for _, f := range l.waiting {
		lost += f.flows
	}
	l.mu.Unlock()
	l.s.mu.Lock()
	l.p.out.Lost += lost
	l.s.mu.Unlock()
}
