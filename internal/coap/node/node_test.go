package node_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// serve runs a node until the test ends.
func serve(t testing.TB, cfg node.Config) *node.Node {
	t.Helper()
	cfg.Version = "test"
	n, err := node.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	netlabtest.Run(t, n.Run)
	return n
}

// peer is a plain UDP client that sees every datagram.
type peer struct {
	t    testing.TB
	conn net.Conn
	mid  uint16
	buf  [9000]byte
}

func dial(t testing.TB, n *node.Node) *peer { t.Helper(); return dialAt(t, n, 0) }

func dialAt(t testing.TB, n *node.Node, listener int) *peer {
	t.Helper()
	conn, err := net.Dial("udp", n.Addresses()[listener].Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &peer{t: t, conn: conn, mid: 1000}
}

func (p *peer) send(datagram []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(datagram); err != nil {
		p.t.Fatal(err)
	}
}

// receive waits for one message; the deadline only ends a test that has failed.
func (p *peer) receive() message.Message {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := p.conn.Read(p.buf[:])
	if err != nil {
		p.t.Fatal(err)
	}
	var m message.Message
	if err := message.Parse(bytes.Clone(p.buf[:n]), &m); err != nil {
		p.t.Fatalf("%x: %v", p.buf[:n], err)
	}
	return m
}

// await requests the status of the only listener until ok, or for long: a busy worker counts as it last did.
func await(n *node.Node, ok func(*node.ListenerStatus) bool) node.ListenerStatus {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s := n.Status().Listeners[0]
		if ok(&s) || time.Now().After(end) {
			return s
		}
	}
}

type option struct {
	id    message.OptionID
	value uint32
}

// request builds a confirmable request for a path with a query; options must sort behind the query.
func (p *peer) request(code message.Code, uri string, payload string, options ...option) []byte {
	p.t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mid++
	var b message.Builder
	b.Reset(make([]byte, 0, 1500+len(payload)), message.Con, code, p.mid, []byte{0xca, 0xfe})
	texts := func(id message.OptionID, escaped, separator string) {
		if escaped == "" {
			return
		}
		for part := range strings.SplitSeq(escaped, separator) {
			value, err := url.PathUnescape(part)
			if err != nil {
				p.t.Fatal(err)
			}
			b.Text(id, value)
		}
	}
	texts(message.URIPath, strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	texts(message.URIQuery, u.RawQuery, "&")
	for _, o := range options {
		b.Uint(o.id, o.value)
	}
	b.Payload([]byte(payload))
	wire, err := b.Bytes()
	if err != nil {
		p.t.Fatal(err)
	}
	return wire
}

func (p *peer) do(code message.Code, uri string, options ...option) message.Message {
	p.t.Helper()
	p.send(p.request(code, uri, "", options...))
	m := p.receive()
	if m.ID != p.mid || m.Type != message.Ack || string(m.Token) != "\xca\xfe" {
		p.t.Fatalf("%s %s: %s %s mid %d, want ACK mid %d", code.Name(), uri, m.Type, m.Code, m.ID, p.mid)
	}
	return m
}

func TestResources(t *testing.T) {
	number := uint32(7)
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, NodeID: &number, Workers: 1})
	p := dial(t, n)
	ip, port, _ := net.SplitHostPort(p.conn.LocalAddr().String())
	accept := func(f message.Format) []option { return []option{{message.Accept, uint32(f)}} }
	text := "ip: " + ip + "\nport: " + port + "\nnode-id: 7\nserver: Weir test"
	for _, c := range []struct {
		name    string
		code    message.Code
		uri     string
		options []option
		want    message.Code
		payload string // a trailing "..." matches any rest
	}{
		{"context text", message.GET, "/context", nil, message.Content, text},
		{"mycontext text", message.GET, "/mycontext", accept(message.Text), message.Content, text},
		{"context JSON", message.GET, "/context", accept(message.JSON), message.Content, `{"ip":"` + ip + `","port":` + port + `,"node-id":7,"server":"Weir test"}`},
		{"context XML", message.GET, "/context", accept(message.XML), message.Content, `<context ip="` + ip + `" port="` + port + `" node-id="7" server="Weir test" />`},
		{"context octets", message.GET, "/context", accept(message.OctetStream), message.NotAcceptable, ""},
		{"context with a query", message.GET, "/context?x", nil, message.BadOption, `query "x" is not supported; none is`},
		{"context POST", message.POST, "/context", nil, message.MethodNotAllowed, ""},
		{"context unknown method", message.Code(31), "/context", nil, message.MethodNotAllowed, ""},
		{"myip text", message.GET, "/myip", nil, message.Content, ip + ":" + port},
		{"myip JSON", message.GET, "/myip", accept(message.JSON), message.Content, `{"ip":"` + ip + `","port":` + port + `}`},
		{"myip XML", message.GET, "/myip", accept(message.XML), message.Content, `<ip ip="` + ip + `" port="` + port + `" />`},
		{"myip CBOR", message.GET, "/myip", accept(message.CBOR), message.NotAcceptable, ""},
		{"benchmark", message.POST, "/benchmark", nil, message.Changed, "hello benchmark"},
		{"benchmark padded", message.POST, "/benchmark?rlen=18", nil, message.Changed, "hello benchmark***"},
		{"benchmark cut", message.POST, "/benchmark?rlen=5", nil, message.Changed, "hello"},
		{"benchmark empty", message.POST, "/benchmark?rlen=0", nil, message.Changed, ""},
		{"benchmark negative", message.POST, "/benchmark?rlen=-1", nil, message.BadOption, `query "rlen=-1" is not supported; rlen is 0 to 8192`},
		{"benchmark too long", message.POST, "/benchmark?rlen=8193", nil, message.BadOption, "..."},
		{"benchmark no number", message.POST, "/benchmark?rlen=", nil, message.BadOption, "..."},
		{"benchmark unknown query", message.POST, "/benchmark?ahead=1", nil, message.BadOption, `query "ahead=1" is not supported; rlen=0..8192 and ack are`},
		{"benchmark query with control characters", message.POST, "/benchmark?%1b%22", nil, message.BadOption, `query "??" is...`},
		{"benchmark GET", message.GET, "/benchmark", nil, message.Content, "hello observe ..."},
		{"benchmark GET padded", message.GET, "/benchmark?rlen=32", nil, message.Content, "hello observe ..."},
		{"benchmark Accept JSON", message.POST, "/benchmark", accept(message.JSON), message.NotAcceptable, ""},
		{"root", message.GET, "/", nil, message.Content, "Weir test..."},
		{"nothing there", message.GET, "/nope", nil, message.NotFound, "..."},
		{"slash inside a segment", message.GET, "/.well-known%2Fcore", nil, message.NotFound, "..."},
		{"empty last segment", message.GET, "/context/", nil, message.NotFound, "..."},
		{"path too long", message.GET, "/" + strings.Repeat("a", 200), nil, message.NotFound, "..."},
		{"core filter by path", message.GET, "/.well-known/core?href=/myi*", nil, message.Content, `</myip>;...`},
		{"core filter by word", message.GET, "/.well-known/core?ct=60", nil, message.Content, `</context>;...`},
		{"core filter without match", message.GET, "/.well-known/core?rt=none", nil, message.Content, ""},
		{"core filter without value", message.GET, "/.well-known/core?rt", nil, message.BadOption, "..."},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.t = t
			m := p.do(c.code, c.uri, c.options...)
			prefix, open := strings.CutSuffix(c.payload, "...")
			if m.Code != c.want || !open && string(m.Payload) != c.payload || open && !strings.HasPrefix(string(m.Payload), prefix) {
				t.Errorf("%s %q\nwant %s %q", m.Code, m.Payload, c.want, c.payload)
			}
		})
	}
	p.t = t
	var fields map[string]any
	if m := p.do(message.GET, "/mycontext", accept(message.JSON)...); json.Unmarshal(m.Payload, &fields) != nil || fields["node-id"] != 7.0 {
		t.Errorf("JSON %s", m.Payload)
	}
	var element struct {
		Node int `xml:"node-id,attr"`
	}
	if m := p.do(message.GET, "/mycontext", accept(message.XML)...); xml.Unmarshal(m.Payload, &element) != nil || element.Node != 7 {
		t.Errorf("XML %s", m.Payload)
	}
}

func TestSeparateOverTheWire(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1, SeparateDelay: time.Millisecond})
	p := dial(t, n)
	for _, uri := range []string{"/separate", "/benchmark?ack&rlen=20"} {
		code := message.POST
		if uri == "/separate" {
			code = message.GET
		}
		p.send(p.request(code, uri, ""))
		if m := p.receive(); m.Code != message.Empty || m.Type != message.Ack || m.ID != p.mid {
			t.Fatalf("%s: first %s %s, want the empty ACK", uri, m.Type, m.Code)
		}
		m := p.receive()
		if m.Type != message.Con || m.Code.Class() != 2 || string(m.Token) != "\xca\xfe" || len(m.Payload) < 20 {
			t.Fatalf("%s: then %s %s %q, want a CON with the response", uri, m.Type, m.Code, m.Payload)
		}
		p.send(message.AppendEmpty(nil, message.Ack, m.ID))
	}
	p.do(message.GET, "/myip") // behind the ACK in the same queue: it has been seen
	s := await(n, func(s *node.ListenerStatus) bool { return s.Exchange.Acks >= 2 && s.Pending == 0 })
	if s.Exchange.Separate != 2 || s.Exchange.Acks != 2 || s.Pending != 0 {
		t.Errorf("%+v, %d pending", s.Exchange, s.Pending)
	}
}

// A body longer than a block, fetched block by block as RFC 7959 section 2.4 says, at the server's and at smaller sizes.
func TestBlock2(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1})
	p := dial(t, n)
	for _, exponent := range []uint32{0, 2, 6} {
		var body []byte
		var tag []byte
		for number := uint32(0); ; number++ {
			m := p.do(message.POST, "/benchmark?rlen=3000", option{message.Block2, number<<4 | exponent})
			block, ok := m.Uint(message.Block2)
			if !ok || m.Code != message.Changed || block>>4 != number || block&7 != exponent {
				t.Fatalf("block %d: %s, Block2 %x %t", number, m.Code, block, ok)
			}
			etag, _ := m.Option(message.ETag)
			if number == 0 {
				tag = append(tag, etag...)
			} else if string(tag) != string(etag) {
				t.Fatalf("ETag changed from %x to %x", tag, etag)
			}
			body = append(body, m.Payload...)
			if block&8 == 0 {
				break
			}
			if len(m.Payload) != 16<<exponent {
				t.Fatalf("block %d has %d bytes", number, len(m.Payload))
			}
		}
		if want := "hello benchmark" + strings.Repeat("*", 2985); string(body) != want {
			t.Errorf("size %d: %d bytes, want %d", 16<<exponent, len(body), len(want))
		}
	}
	if m := p.do(message.POST, "/benchmark?rlen=3000"); len(m.Payload) != 1024 {
		t.Errorf("first block without a request: %d bytes", len(m.Payload))
	}
	if m := p.do(message.GET, "/myip", option{message.Block2, 9 << 4}); m.Code != message.BadOption {
		t.Errorf("block behind the end: %s", m.Code)
	}
	if m := p.do(message.GET, "/myip", option{message.Block2, 7}); m.Code != message.BadRequest {
		t.Errorf("reserved size: %s", m.Code)
	}
}

// Whatever arrives, the server goes on serving and keeps counting.
func TestHostileDatagrams(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1})
	p := dial(t, n)
	random := rand.New(rand.NewPCG(3, 4))
	valid := p.request(message.POST, "/benchmark?rlen=64", "payload")
	for i := range 10000 {
		datagram := append([]byte(nil), valid...)
		switch i % 3 {
		case 0: // flipped bytes
			for range 1 + random.IntN(4) {
				datagram[random.IntN(len(datagram))] = byte(random.Uint32())
			}
		case 1: // cut
			datagram = datagram[:random.IntN(len(datagram))]
		default: // noise
			datagram = datagram[:1+random.IntN(len(datagram)-1)]
			for j := range datagram {
				datagram[j] = byte(random.Uint32())
			}
		}
		_, _ = p.conn.Write(datagram) // a full queue may refuse
	}
	fresh := dial(t, n)
	fresh.mid = binary.BigEndian.Uint16([]byte{0x12, 0x34})
	for range 50 { // the queue before it may still be full: ask again, as a client does
		fresh.send(fresh.request(message.GET, "/myip", ""))
		_ = fresh.conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if k, err := fresh.conn.Read(fresh.buf[:]); err == nil && k > 0 && message.Code(fresh.buf[1]) == message.Content {
			if s := await(n, func(s *node.ListenerStatus) bool { return s.Exchange.Malformed > 0 }); s.Exchange.Malformed == 0 {
				t.Errorf("nothing was counted: %+v", s.Exchange)
			}
			return
		}
	}
	t.Fatal("no answer after the noise")
}

// A wildcard listener serves both families and names each client by its own.
func TestWildcard(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{":0"}, Workers: 1})
	port := n.Addresses()[0].Addr.Port()
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := net.Dial("udp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err != nil {
			if host == "::1" {
				t.Skip("no IPv6 here: ", err)
			}
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		p := &peer{t: t, conn: conn}
		if m := p.do(message.GET, "/myip"); string(m.Payload) != conn.LocalAddr().String() {
			t.Errorf("%s: %q, want %s", host, m.Payload, conn.LocalAddr())
		}
	}
}

func TestBenchmarkCanBeOff(t *testing.T) {
	off := false
	p := dial(t, serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1, Benchmark: &off}))
	if m := p.do(message.POST, "/benchmark"); m.Code != message.NotImplemented {
		t.Errorf("%s", m.Code)
	}
	if m := p.do(message.GET, "/.well-known/core"); strings.Contains(string(m.Payload), "benchmark") {
		t.Errorf("listed: %s", m.Payload)
	}
}
