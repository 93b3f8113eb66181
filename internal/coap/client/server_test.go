package client

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/pion/dtls/v3"

	"github.com/weir-lb/weir/internal/coap/message"
)

// peer is a CoAP server for tests, over plain UDP or over pion's DTLS: another implementation than the one under test.
type peer struct {
	uri      string
	requests atomic.Int64
	accepted atomic.Int64
	silent   atomic.Bool   // answers nothing
	code     atomic.Uint32 // message.Code of the answers
	separate atomic.Bool
	demand   atomic.Pointer[func(m *message.Message) []byte] // value of the Echo option that a request lacks; nil: it lacks none
}

// serve answers one request datagram; nil: nothing to say.
func (p *peer) serve(in []byte) [][]byte {
	var m message.Message
	if message.Parse(in, &m) != nil || !m.Code.IsRequest() || p.silent.Load() {
		return nil
	}
	p.requests.Add(1)
	var b message.Builder
	kind, id, code := message.Ack, m.ID, message.Code(p.code.Load())
	var value []byte
	if demand := p.demand.Load(); demand != nil {
		if value = (*demand)(&m); value != nil {
			code = message.Unauthorized
		}
	}
	var out [][]byte
	if p.separate.Load() {
		out = append(out, message.AppendEmpty(nil, message.Ack, m.ID))
		kind, id = message.Con, m.ID^0x8000
	}
	if m.Type == message.Non {
		kind, id = message.Non, m.ID^0x8000
	}
	b.Reset(make([]byte, 0, 512), kind, code, id, m.Token)
	b.Uint(message.ContentFormat, uint32(message.Text))
	if value != nil {
		b.Option(message.Echo, value)
	}
	b.Payload([]byte("ip: 127.0.0.1\nnode-id: 1"))
	reply, err := b.Bytes()
	if err != nil {
		panic(err)
	}
	return append(out, reply)
}

func newPeer(t *testing.T, secure bool) *peer {
	t.Helper()
	p := &peer{}
	p.code.Store(uint32(message.Content))
	if secure {
		p.listenDTLS(t, &dtls.Config{
			PSK:                   func([]byte) ([]byte, error) { return []byte(DefaultSecret), nil },
			PSKIdentityHint:       []byte("hint"),
			CipherSuites:          []dtls.CipherSuiteID{dtls.TLS_PSK_WITH_AES_128_CCM_8},
			ConnectionIDGenerator: dtls.RandomCIDGenerator(6),
		})
		return p
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadBuffer(4 << 20)
	t.Cleanup(func() { conn.Close() })
	p.uri = "coap://" + conn.LocalAddr().String() + "/context"
	go func() {
		buffer := make([]byte, 2*maxRequest)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			for _, reply := range p.serve(buffer[:n]) {
				conn.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	return p
}

// newPeerWith is a peer with another configuration of pion's.
func newPeerWith(t *testing.T, cfg *dtls.Config) *peer {
	t.Helper()
	p := &peer{}
	p.code.Store(uint32(message.Content))
	p.listenDTLS(t, cfg)
	return p
}

func (p *peer) listenDTLS(t *testing.T, cfg *dtls.Config) {
	t.Helper()
	listener, err := dtls.Listen("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); listener.Close() })
	p.uri = "coaps://127.0.0.1:" + strconv.Itoa(listener.Addr().(*net.UDPAddr).Port) + "/context"
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.session(ctx, conn)
		}
	}()
}

func (p *peer) session(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	if err := conn.(*dtls.Conn).HandshakeContext(ctx); err != nil {
		return
	}
	p.accepted.Add(1)
	buffer := make([]byte, 2048)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		for _, reply := range p.serve(buffer[:n]) {
			conn.Write(reply)
		}
	}
}
