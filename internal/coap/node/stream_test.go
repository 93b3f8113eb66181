package node_test

import (
	"bytes"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/coap/stream"
	"github.com/weir-lb/weir/internal/dtls/handshake/handshaketest"
)

// streamPeer is a client over TCP or TLS.
type streamPeer struct {
	*peer // builds requests
	conn  *stream.Conn
}

func dialStream(t testing.TB, n *node.Node, listener int, secure *tls.Config, own stream.Settings) *streamPeer {
	t.Helper()
	c, err := stream.Dial(t.Context(), n.Addresses()[listener].Addr.String(), secure, own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := c.ReceiveCSM(); err != nil {
		t.Fatal(err)
	}
	return &streamPeer{peer: &peer{t: t}, conn: c}
}

func (p *streamPeer) next() message.Message {
	p.t.Helper()
	var m message.Message
	if err := p.conn.Receive(&m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p *streamPeer) do(code message.Code, uri, payload string, options ...option) message.Message {
	p.t.Helper()
	if err := p.conn.Send(p.request(code, uri, payload, options...)); err != nil {
		p.t.Fatal(err)
	}
	m := p.next()
	if string(m.Token) != "\xca\xfe" {
		p.t.Fatalf("%s: token %x", uri, m.Token)
	}
	return m
}

func TestResourcesOverTCP(t *testing.T) {
	n := serve(t, node.Config{TCP: []string{"127.0.0.1:0"}, Plugtest: true, Workers: 1, SeparateDelay: time.Millisecond})
	p := dialStream(t, n, 0, nil, stream.Settings{})
	if uri := n.Addresses()[0].URI; !strings.HasPrefix(uri, "coap+tcp://127.0.0.1:") {
		t.Error(uri)
	}
	for _, c := range []struct {
		code    message.Code
		uri     string
		payload string
		options []option
		want    message.Code
		length  int // of the payload; -1: any
	}{
		{message.GET, "/context", "", nil, message.Content, -1},
		{message.GET, "/nowhere", "", nil, message.NotFound, -1},
		{message.GET, "/separate", "", nil, message.Content, -1},
		{message.POST, "/benchmark?rlen=8192", "", nil, message.Changed, 8192}, // whole: the client accepts 64 KiB
		{message.POST, "/benchmark?rlen=8000&ack", "", nil, message.Changed, 8000},
		{message.POST, "/benchmark?rlen=8192", "", []option{{message.Block2, 0<<4 | 2}}, message.Changed, 64},
		{message.POST, "/benchmark?rlen=8192", "", []option{{message.Block2, 7<<4 | 7}}, message.Changed, 1024}, // BERT: from block 7 of 1024 on
		{message.POST, "/benchmark", strings.Repeat("x", 9000), nil, message.RequestEntityTooLarge, -1},
		{message.GET, "/context", "", []option{{message.ProxyScheme, 'x'}}, message.ProxyingNotSupported, -1},
		{message.GET, "/context", "", []option{{2049, 'x'}}, message.BadOption, -1},
		{message.GET, "/large", "", nil, message.Content, 1280},
	} {
		m := p.do(c.code, c.uri, c.payload, c.options...)
		if m.Code != c.want || c.length >= 0 && len(m.Payload) != c.length {
			t.Errorf("%s %s: %s, %d bytes, want %s, %d", c.code.Name(), c.uri, m.Code, len(m.Payload), c.want, c.length)
		}
	}
	s := n.Status().Listeners[0]
	if s.Streams == nil || s.Streams.Connections != 1 || s.Streams.Messages != 11 || s.Exchange.Requests == 0 {
		t.Errorf("%+v", s)
	}
}

// A client that accepts no more than the base value of 1152 bytes and no BERT gets blocks of 1024 bytes; one that accepts more, and
// BERT, several of them in a message (RFC 8323 section 6).
func TestBlocksOverTCP(t *testing.T) {
	n := serve(t, node.Config{TCP: []string{"127.0.0.1:0"}, Workers: 1})
	for _, c := range []struct {
		own    stream.Settings
		size   int // of a message
		option uint32
	}{
		{stream.Settings{MaxMessageSize: 1152, BlockWise: true}, 1024, 6},
		{stream.Settings{MaxMessageSize: 4000, BlockWise: true}, 3072, 7},
		{stream.Settings{MaxMessageSize: 4000}, 1024, 6},
	} {
		p := dialStream(t, n, 0, nil, c.own)
		var body []byte
		for more := true; more; {
			exponent := c.option
			m := p.do(message.POST, "/benchmark?rlen=8192", "", option{message.Block2, uint32(len(body)/1024)<<4 | exponent})
			block, ok := m.Uint(message.Block2)
			if !ok || block&7 != c.option || int(block>>4) != len(body)/1024 || m.Code != message.Changed {
				t.Fatalf("%+v: %s, Block2 %x after %d bytes", c.own, m.Code, block, len(body))
			}
			if more = block&8 != 0; more && len(m.Payload) != c.size {
				t.Fatalf("%+v: %d bytes", c.own, len(m.Payload))
			}
			body = append(body, m.Payload...)
		}
		if len(body) != 8192 {
			t.Errorf("%+v: %d bytes", c.own, len(body))
		}
		if m := p.do(message.POST, "/benchmark?rlen=8192", ""); len(m.Payload) != c.size || m.Code != message.Changed {
			t.Errorf("%+v: %s, %d bytes without a Block2", c.own, m.Code, len(m.Payload))
		}
	}
}

// Request bodies come with several blocks in a message, and with blocks of 1024 bytes.
func TestRequestBlocksOverTCP(t *testing.T) {
	n := serve(t, node.Config{TCP: []string{"127.0.0.1:0"}, Workers: 1, Plugtest: true})
	body := strings.Repeat("abcdefgh", 1000)
	for _, c := range []struct {
		exponent uint32
		size     int
	}{{7, 3072}, {7, 8000}, {6, 1024}} {
		p := dialStream(t, n, 0, nil, stream.Settings{})
		for start := 0; start < len(body); start += c.size {
			end := min(start+c.size, len(body))
			block := uint32(start/1024)<<4 | c.exponent
			want := message.Changed
			if end < len(body) {
				block, want = block|8, message.Continue
			}
			m := p.do(message.POST, "/large-post", body[start:end], option{message.ContentFormat, 0}, option{message.Block1, block})
			if m.Code != want {
				t.Fatalf("block %x: %s %s", block, m.Code, m.Payload)
			}
			if end == len(body) && !bytes.Equal(m.Payload, bytes.ToUpper([]byte(body))) {
				t.Errorf("echo of %d bytes", len(m.Payload))
			}
		}
	}
	p := dialStream(t, n, 0, nil, stream.Settings{})
	if m := p.do(message.POST, "/large-post", "odd", option{message.ContentFormat, 0}, option{message.Block1, 0<<4 | 8 | 7}); m.Code != message.BadRequest {
		t.Errorf("three bytes as whole blocks: %s", m.Code)
	}
}

func TestObserveOverTLS(t *testing.T) {
	a := handshaketest.NewAuthority(t, "test")
	own := a.Issue(t, "P-256", "server.test", nil)
	n := serve(t, node.Config{
		TLS: []string{"127.0.0.1:0"}, Plugtest: true, Workers: 1,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: own.Chain, PrivateKey: own.Key}}, NextProtos: []string{"coap"}},
	})
	p := dialStream(t, n, 0, &tls.Config{RootCAs: a.Roots, ServerName: "server.test", NextProtos: []string{"coap"}}, stream.Settings{})
	if m := p.do(message.GET, "/mycontext", ""); !strings.Contains(string(m.Payload), "cipher-suite: TLS_") {
		t.Errorf("%s", m.Payload)
	}
	p.mid = 0
	var b message.Builder
	b.Reset(make([]byte, 0, 64), message.Non, message.GET, 0, []byte{0xaa})
	b.Uint(message.Observe, 0)
	b.Text(message.URIPath, "obs")
	get, _ := b.Bytes()
	if err := p.conn.Send(get); err != nil {
		t.Fatal(err)
	}
	if m := p.next(); m.Code != message.Content || string(m.Token) != "\xaa" {
		t.Fatal(m.Code)
	}
	for _, state := range []string{"one", "two", "three"} {
		if err := p.conn.Send(p.request(message.PUT, "/obs", state, option{message.ContentFormat, 0})); err != nil {
			t.Fatal(err)
		}
		var changed, notified bool
		for !changed || !notified {
			switch m := p.next(); {
			case m.Code == message.Changed:
				changed = true
			case string(m.Token) == "\xaa" && string(m.Payload) == state:
				notified = true
			}
		}
	}
	if s := n.Status().Listeners[0]; s.Resources.Observers != 1 || s.Resources.Notifications < 3 || s.Exchange.Retransmissions != 0 {
		t.Errorf("%+v %+v", s.Resources, s.Exchange)
	}
}
