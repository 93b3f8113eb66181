package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/udpio"
)

// socket is a source port with the clients that use it.
type socket struct {
	udpio.Socket
	clients    []*simulated
	exchange   exchange.Session // of all its clients, without DTLS
	handshaker *simulated       // its handshake owns the records without connection id
	index      uint64
	opened     uint64      // how often
	stream     *streamPeer // over TCP; nil: not connected
	moveDue    bool        // change the source port before the next request
	moved      bool        // the last change was to another address
}

// open gives s a new source port, and the next source address if there are several.
func (w *worker) open(s *socket) error {
	if w.b.target.Stream {
		return nil // each client connects
	}
	from := w.source(s)
	fresh, err := udpio.DialFrom(from, w.b.address, true)
	if err != nil {
		return err
	}
	s.opened++
	if err := w.poller.Add(&fresh, s.index); err != nil {
		fresh.Close()
		return err
	}
	s.moved = false
	if s.IsOpen() && from.IsValid() {
		before, err := s.LocalAddr()
		after, err2 := fresh.LocalAddr()
		s.moved = err == nil && err2 == nil && before.Addr() != after.Addr()
	}
	s.Socket.Close()
	s.Socket = fresh
	return nil
}

// source is the local address of the next socket of s; the zero one lets the kernel choose.
func (w *worker) source(s *socket) (from netip.Addr) {
	if n := uint64(len(w.b.cfg.From)); n > 0 {
		from = w.b.cfg.From[(s.index+s.opened)%n]
	}
	return from
}

// rebind marks the sockets whose rebind is due. Each changes its port before its next request, so that no answer is on its
// way to the old port.
func (w *worker) rebind() {
	if w.b.cfg.RebindEvery <= 0 || w.phase != phaseLoad || w.now < w.rebindAt {
		return
	}
	w.rebindAt = w.now + w.b.cfg.RebindEvery
	for _, s := range w.sockets {
		if w.b.cfg.RebindShare >= 1 || w.random.Float64() < w.b.cfg.RebindShare {
			s.moveDue = true
		}
	}
}

// move changes the source port of s if that is due.
func (w *worker) move(s *socket) {
	if !s.moveDue || s.handshaker != nil {
		return
	}
	s.moveDue = false
	if err := w.open(s); err == nil {
		w.stats.Rebinds += uint64(len(s.clients))
		if s.moved {
			w.stats.Moves += uint64(len(s.clients))
		}
	}
}

// transmit sends a datagram from s; what the kernel refuses is lost like on the network.
func (w *worker) transmit(s *socket, datagram []byte) {
	if err := s.Send(datagram); err != nil {
		w.refused(err)
	}
}

func (w *worker) refused(err error) {
	w.stats.Refused++
	if w.phase == phaseProbe {
		w.fail(fmt.Errorf("%s: %w", w.b.address, err))
	}
}

// read reads the datagrams that have arrived at s.
func (w *worker) read(s *socket) {
	if w.b.target.Stream {
		w.readStream(s)
		return
	}
	for range perSocketRead {
		n, err := s.Receive(w.in)
		if err != nil {
			if !errors.Is(err, unix.EAGAIN) {
				w.refused(err)
			}
			return
		}
		if w.b.target.Secure {
			w.route(s, w.in[:n])
		} else {
			w.plain(s, w.in[:n])
		}
		if len(s.clients) == 1 {
			return // one request in flight: a second datagram is rare, and the poller reports it
		}
	}
}

// route finds the client a DTLS datagram is for: by connection id, else it is the socket's handshake's, or its only client's.
func (w *worker) route(s *socket, datagram []byte) {
	c := s.handshaker
	if n := w.b.cfg.CIDLength; len(datagram) >= record.HeaderLength+n && record.ContentType(datagram[0]) == record.TLS12CID && n >= 4 {
		c = nil
		if number := binary.BigEndian.Uint32(datagram[11:]); s.owns(number) {
			c = s.clients[number-s.clients[0].number]
		}
	} else if len(s.clients) == 1 {
		c = s.clients[0]
	}
	if c == nil {
		w.stats.Stray++
		return
	}
	c.receive(datagram)
}

func (s *socket) owns(number uint32) bool {
	return number-s.clients[0].number < uint32(len(s.clients))
}

// plain handles a datagram without DTLS.
func (w *worker) plain(s *socket, datagram []byte) {
	if ack := w.endpoint.Receive(&s.exchange, datagram, w.out, w.now); len(ack) > 0 {
		w.transmit(s, ack)
	}
}
