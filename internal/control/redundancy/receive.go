package redundancy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// maxEntries bounds the flows of one connection that are followed: as many as a table can have.
const maxEntries = 1 << 23

// listen takes connections of peers until ctx ends.
func (s *Sync) listen(ctx context.Context, settings *lb.Sync, secured *tls.Config) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		l, err := net.Listen("tcp", settings.Listen.String())
		if err != nil {
			s.fail(fmt.Errorf("listen for peers: %w", err))
		} else {
			s.fail(nil)
			stop := context.AfterFunc(ctx, func() { l.Close() })
			s.accept(ctx, l, secured, &group)
			stop()
			l.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryEvery):
		}
	}
}

func (s *Sync) accept(ctx context.Context, l net.Listener, secured *tls.Config, group *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		p := s.admit(conn)
		if p == nil {
			conn.Close()
			continue
		}
		group.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			s.receive(ctx, p, tls.Server(conn, secured))
		})
	}
}

// admit finds the peer that a connection is from; nil: none, or another one of it is in its handshake.
func (s *Sync) admit(conn net.Conn) *peer {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if p.address.Addr() == from.Addr().Unmap() && !p.handshaking {
			p.handshaking = true
			return p
		}
	}
	s.rejected++
	return nil
}

// receive serves one connection.
func (s *Sync) receive(ctx context.Context, p *peer, conn *tls.Conn) {
	buffer := make([]byte, maxFrame)
	instance, err := s.greet(ctx, conn, buffer)
	s.mu.Lock()
	p.handshaking = false
	if err != nil {
		s.rejected++
		if p.incoming == nil {
			p.in.Error = err.Error()
		}
		s.mu.Unlock()
		return
	}
	if p.incoming != nil {
		p.incoming.Close() // the peer has begun a new one
	}
	now := time.Now()
	p.incoming, p.instance, p.unknown = conn, instance, false
	p.in.Connected, p.in.Since, p.in.Complete, p.in.Error = true, &now, false, ""
	s.connectedLocked()
	s.mu.Unlock()
	s.log.Info("a peer sends the state of its flows", "event", "sync_peer_sends", "peer", p.address.String())
	r := &receiver{s: s, p: p, conn: conn, instance: instance, backends: map[uint16]backend{}, entries: map[uint32]flow.Entry{}}
	err = r.run(buffer)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.incoming != conn {
		return
	}
	p.incoming, p.in.Connected, p.in.Complete, p.in.Since, p.in.Error = nil, false, false, nil, err.Error()
	s.connectedLocked()
	if ctx.Err() == nil {
		s.log.Warn("a peer does not send the state of its flows any more", "event", "sync_peer_silent", "peer", p.address.String(), "error", err)
	}
}

// greet makes the handshake and exchanges hello.
func (s *Sync) greet(ctx context.Context, conn *tls.Conn, buffer []byte) (uint64, error) {
	if err := handshake(ctx, conn); err != nil {
		return 0, fmt.Errorf("handshake (has the peer the same key?): %w", err)
	}
	conn.SetDeadline(time.Now().Add(handshakeTimeout))
	k, body, err := readFrame(conn, buffer)
	if err != nil {
		return 0, err
	}
	if k != kindHello {
		return 0, errFrame
	}
	instance, err := readHello(body)
	if err != nil {
		return 0, err
	}
	_, err = conn.Write(appendHello(nil, s.instance))
	return instance, errors.Join(err, conn.SetDeadline(time.Time{}))
}

// receiver is one connection of a peer.
type receiver struct {
	s        *Sync
	p        *peer
	conn     net.Conn
	instance uint64
	backends map[uint16]backend
	entries  map[uint32]flow.Entry // by the peer's numbers
	numbers  []uint32
	flows    []flow.Translated
	answers  []flow.Answer
	refused  uint64
	out      []byte
}

func (r *receiver) run(buffer []byte) error {
	for {
		r.conn.SetReadDeadline(time.Now().Add(silence))
		k, body, err := readFrame(r.conn, buffer)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the peer has closed the connection")
			}
			return err
		}
		if k == kindBackend {
			number, of, err := readBackend(body)
			if err != nil {
				return err
			}
			r.backends[number] = of
			continue
		}
		sequence, body, err := readNumber(body)
		if err == nil {
			err = r.frame(k, body)
		}
		if err != nil {
			return err
		}
		r.out = appendNumbers(r.out[:0], kindAck, sequence, r.refused)
		r.conn.SetWriteDeadline(time.Now().Add(silence))
		if _, err := r.conn.Write(r.out); err != nil {
			return err
		}
	}
}

// frame acts on a frame with a sequence number.
func (r *receiver) frame(k kind, body []byte) error {
	switch k {
	case kindFlows:
		return r.enter(body)
	case kindEnded:
		return r.end(body)
	case kindBulkEnd:
		r.s.mu.Lock()
		r.p.in.Complete, r.p.bulk = true, true
		r.s.mu.Unlock()
		r.s.log.Info("the state of a peer's flows is complete", "event", "sync_complete", "peer", r.p.address.String(), "flows", len(r.entries))
		r.s.changed()
		return nil
	case kindAlive:
		return nil
	}
	return errFrame
}

// enter enters the flows of a frame into the table.
func (r *receiver) enter(body []byte) error {
	r.numbers, r.flows = r.numbers[:0], r.flows[:0]
	unnamed := false
	if err := readFlows(body, func(record *record) {
		of, ok := r.backends[record.backend]
		unnamed = unnamed || !ok
		record.flow.Service, record.flow.Backend, record.flow.Server = of.service, of.name, of.server
		r.numbers, r.flows = append(r.numbers, record.number), append(r.flows, record.flow)
	}); err != nil {
		return err
	}
	if unnamed || len(r.entries)+len(r.flows) > maxEntries {
		return errFrame
	}
	if cap(r.answers) < len(r.flows) {
		r.answers = make([]flow.Answer, len(r.flows))
	}
	answers := r.answers[:len(r.flows)]
	r.s.options.Table.EnterFlows(r.instance, r.flows, answers)
	var refused [flow.NumRefusals]uint64
	for i, number := range r.numbers {
		answer := answers[i]
		if old, ok := r.entries[number]; ok && (answer.Refusal != flow.Accepted || old != answer.Entry) {
			r.s.options.Table.EndFlow(old)
			delete(r.entries, number)
		}
		if answer.Refusal == flow.Accepted {
			r.entries[number] = answer.Entry
		}
		refused[answer.Refusal]++
	}
	r.count(len(r.flows), &refused)
	return nil
}

func (r *receiver) count(received int, refused *[flow.NumRefusals]uint64) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.p.in.Received += uint64(received)
	for reason, n := range refused {
		if n == 0 || flow.Refusal(reason) == flow.Accepted {
			continue
		}
		r.p.in.Refused[flow.Refusal(reason).String()] += n
		r.refused += n
		switch flow.Refusal(reason) {
		case flow.NotReady, flow.UnknownService, flow.UnknownBackend, flow.UnknownSource:
			r.p.unknown = true
		}
	}
}

// end ends the flows of a frame.
func (r *receiver) end(body []byte) error {
	if len(body)%4 != 0 {
		return errFrame
	}
	ended := uint64(0)
	for ; len(body) > 0; body = body[4:] {
		number := uint32(body[0])<<24 | uint32(body[1])<<16 | uint32(body[2])<<8 | uint32(body[3])
		if entry, ok := r.entries[number]; ok {
			r.s.options.Table.EndFlow(entry)
			delete(r.entries, number)
		}
		ended++
	}
	r.s.mu.Lock()
	r.p.in.Ended += ended
	r.s.mu.Unlock()
	return nil
}
