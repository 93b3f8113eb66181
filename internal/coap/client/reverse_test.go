package client

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
)

// turning is a server that sends requests to its clients, observes them, and notifies them, as Californium's extended plugtest
// server does. It runs on one goroutine.
type turning struct {
	t        *testing.T
	conn     *net.UDPConn
	endpoint *exchange.Endpoint
	peers    map[netip.AddrPort]*turned
	begun    time.Time
	count    uint32

	requests, notifications, rejected, answered atomic.Int64
}

// turned is one of its clients.
type turned struct {
	session  exchange.Session
	address  netip.AddrPort
	left     int    // requests or notifications wanted
	resource string // at the client
	observe  bool
	token    []byte // of what the client observes here
	sequence uint32
}

func newTurning(t *testing.T) (*turning, string) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &turning{t: t, conn: conn, peers: map[netip.AddrPort]*turned{}, begun: time.Now()}
	s.endpoint = exchange.New(exchange.Config{
		Supported: func(id message.OptionID) bool { return id != message.OSCORE }, Unmatched: s.unmatched, Notified: s.notified,
	}, s, s, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		in, out := make([]byte, 4096), make([]byte, 0, 4096)
		for {
			conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			n, from, err := conn.ReadFromUDPAddrPort(in)
			now := time.Since(s.begun)
			s.endpoint.Tick(now)
			if err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					continue
				}
				return
			}
			p := s.peers[from]
			if p == nil {
				p = &turned{address: from}
				p.session.Peer = p
				s.peers[from] = p
			}
			if answer := s.endpoint.Receive(&p.session, in[:n], out, now); len(answer) > 0 {
				_, _ = conn.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return s, "coap://" + conn.LocalAddr().String()
}

func (s *turning) SendTo(session *exchange.Session, datagram []byte, _ time.Duration) {
	_, _ = s.conn.WriteToUDPAddrPort(datagram, session.Peer.(*turned).address)
}

func (s *turning) Serve(session *exchange.Session, m *message.Message, reply *exchange.Reply, now time.Duration) {
	p := session.Peer.(*turned)
	if observe, ok := m.Uint(message.Observe); ok && observe == 0 {
		p.token = append(p.token[:0], m.Token...)
		p.sequence++
		reply.Begin(message.Content).Uint(message.Observe, p.sequence)
		s.notify(p, now)
		return
	}
	for options := m.Options(); options.Next(); {
		name, value, _ := strings.Cut(string(options.Value()), "=")
		switch {
		case options.ID() != message.URIQuery:
		case name == "res":
			p.resource = value
		case name == "req" || name == "obs":
			p.left, _ = strconv.Atoi(value)
			p.observe = name == "obs"
		}
	}
	s.requests.Add(1)
	reply.Begin(message.Changed)
	s.ask(p, 0, now)
}

// ask sends a GET to a client; with an Observe value if it is to be observed.
func (s *turning) ask(p *turned, observe uint32, now time.Duration) {
	token := binary.BigEndian.AppendUint32(nil, s.count)
	s.count++
	options := []Option{{message.URIPath, []byte(p.resource)}}
	if p.observe {
		options = append(options, UintOption(message.Observe, observe))
	}
	datagram, err := build(message.Con, message.GET, token, options, nil)
	if err != nil {
		s.t.Error(err)
	}
	binary.BigEndian.PutUint16(datagram[2:], s.endpoint.NextID(&p.session))
	if _, err := s.endpoint.Send(&p.session, datagram, now); err != nil {
		s.t.Error(err)
	}
}

func (s *turning) Response(session *exchange.Session, _ exchange.ID, m *message.Message, _ time.Duration, _ int) {
	p := session.Peer.(*turned)
	ended := p.observe && p.left == 0 && m.Code == message.NotFound // the cancellation reached a client that had all it wanted
	if !ended && (m.Code != message.Content || string(m.Payload) != "payload") {
		s.t.Errorf("a client answers %s %q", m.Code, m.Payload)
	}
	if p.observe {
		return
	}
	s.answered.Add(1)
	if p.left--; p.left > 0 {
		s.ask(p, 0, time.Since(s.begun))
	}
}

func (s *turning) Failed(*exchange.Session, exchange.ID, exchange.Failure) {}

func (s *turning) unmatched(session *exchange.Session, m *message.Message) bool {
	p := session.Peer.(*turned)
	if !p.observe || p.left == 0 {
		return false
	}
	s.answered.Add(1)
	if p.left--; p.left == 0 {
		s.ask(p, 1, time.Since(s.begun))
	}
	return m.Code == message.Content
}

func (s *turning) notify(p *turned, now time.Duration) {
	p.sequence++
	datagram, err := build(message.Con, message.Content, p.token, []Option{UintOption(message.Observe, p.sequence)}, []byte("state"))
	if err != nil {
		s.t.Error(err)
	}
	s.endpoint.Notify(&p.session, datagram, false, now)
}

func (s *turning) notified(session *exchange.Session, _ uint16, outcome exchange.Outcome) {
	if outcome == exchange.NotifyRejected {
		s.rejected.Add(1)
		return
	}
	s.notifications.Add(1)
	s.notify(session.Peer.(*turned), time.Since(s.begun))
}

// Clients observe, answer the requests of the server, and are observed: each as often as asked, and both sides count the same.
func TestBenchModes(t *testing.T) {
	const clients, each = 4, 25
	for _, test := range []struct {
		mode Mode
		path string
	}{
		{ModeObserve, "/benchmark"},
		{ModeObserve, "/some/benchmark?rlen=40&x=y"},
		{ModeObserve, ""},
		{ModeReverseRequest, "/reverse-request?req=5&res=feed-CON"},
		{ModeReverseRequest, "/reverse-request?req=25&res=feed-NON"},
		{ModeReverseObserve, "/reverse-observe?obs=5&res=feed-CON"},
		{ModeReverseObserve, "/reverse-observe?obs=30&res=feed-NON"},
	} {
		t.Run(string(test.mode)+test.path, func(t *testing.T) {
			s, uri := newTurning(t)
			r, err := Bench(t.Context(), BenchConfig{URI: uri + test.path, Mode: test.mode, Clients: clients, Requests: each, Payload: []byte("payload")}, nil)
			if err != nil {
				t.Fatal(err)
			}
			st := &r.Stats
			if st.Requests != clients*each || st.Errors+st.Lost+st.Failed != 0 || len(r.Groups) != 1 || r.Groups[0] != (Group{Clients: clients, From: each, To: each}) {
				t.Errorf("%+v, %+v", st, r.Groups)
			}
			seen := s.answered.Load()
			if test.mode == ModeObserve {
				seen = s.notifications.Load() + clients // the answers to the registrations
			}
			if seen < clients*(each-1) {
				t.Errorf("the server has seen %d", seen)
			}
		})
	}
}

// A payload and a response of several blocks are one request.
func TestBenchBlocks(t *testing.T) {
	body := []byte(strings.Repeat("0123456789", 50))
	var puts atomic.Int64
	uri := scripted(t, func(m *message.Message, send func([]byte)) {
		block1, up := m.Uint(message.Block1)
		block2, _ := m.Uint(message.Block2)
		if up && block1&8 != 0 {
			send(answerTo(t, m, message.Ack, m.ID, message.Continue, nil, UintOption(message.Block1, block1)))
			return
		}
		if up {
			puts.Add(1)
		} else if block2>>4 == 0 || len(m.Payload) > 0 {
			t.Errorf("a request with %d bytes for block %d", len(m.Payload), block2>>4)
		}
		start := int(block2>>4) * 64
		end := min(start+64, len(body))
		value := block2>>4<<4 | 2
		if end < len(body) {
			value |= 8
		}
		options := []Option{UintOption(message.Block2, value)}
		if up {
			options = append(options, UintOption(message.Block1, block1))
		}
		send(answerTo(t, m, message.Ack, m.ID, message.Changed, body[start:end], options...))
	})
	r, err := Bench(t.Context(), BenchConfig{URI: uri, Clients: 3, Requests: 4, Payload: body, BlockSize: 64}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// 8 blocks up, 8 down, the last of the first and the first of the last in one message.
	if r.Stats.Requests != 12 || r.Stats.Errors != 0 || puts.Load() != 13 || r.Stats.Blocks != 13*14 || r.Stats.FirstBlocks != 0 {
		t.Errorf("%+v, %d payloads", r.Stats, puts.Load())
	}
}

func TestBenchModeValidation(t *testing.T) {
	for want, cfg := range map[string]BenchConfig{
		"use request, observe":             {URI: "coap://h", Mode: "some"},
		"need a socket each":               {URI: "coap://h", Mode: ModeObserve, Sockets: SocketsShared},
		"the URI has neither DTLS nor TLS": {URI: "coap://h", HandshakeEvery: 1},
		"does not say how many":            {URI: "coap://h/reverse-request", Mode: ModeReverseRequest},
		"repeated in mode request only":    {URI: "coaps://h", Mode: ModeObserve, HandshakeEvery: 1},
		"block size: 100 is not 16":        {URI: "coap://h", BlockSize: 100},
		"intervals must not be negative":   {URI: "coap://h", NotifyEvery: -1},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}
