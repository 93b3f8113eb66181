package node_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/coap/stream"
)

func TestReceiveTest(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1})
	p := dial(t, n)
	before := time.Now().UnixMilli()
	for i := range 30 {
		m := p.do(message.POST, fmt.Sprintf("/requests?dev=one&rid=RID%d", i))
		if m.Code != message.Changed || !strings.HasPrefix(string(m.Payload), "systemstart:") || !strings.Contains(string(m.Payload), fmt.Sprintf("\nRID%d:", i)) {
			t.Fatalf("%s %s", m.Code, m.Payload)
		}
		if len(m.Payload) > 500 {
			t.Fatalf("%d bytes", len(m.Payload))
		}
	}
	m := p.do(message.POST, "/requests?dev=one&rid=last&ep&rlen=1023", option{message.Accept, uint32(message.JSON)})
	var entries []struct {
		Systemstart, Time int64
		Rid, EP           string
		Port              uint16
	}
	if err := json.Unmarshal(m.Payload, &entries); err != nil {
		t.Fatalf("%s: %v", m.Payload, err)
	}
	local := netip.MustParseAddrPort(p.conn.LocalAddr().String())
	if len(entries) < 10 || len(entries) > 25 || entries[0].Systemstart == 0 || entries[1].Rid != "last" || entries[2].Rid != "RID29" || entries[1].EP != "127.0.0.1" ||
		entries[1].Port != local.Port() || entries[1].Time < before {
		t.Errorf("%+v", entries)
	}
	if m := p.do(message.POST, "/requests?dev=two&rid=only", option{message.Accept, uint32(message.CBOR)}); !strings.HasPrefix(string(m.Payload), "\x82\xa1\x6bsystemstart\x1b") || !strings.Contains(string(m.Payload), "\xa2\x63rid\x64only\x64time\x1b") {
		t.Errorf("%x", m.Payload)
	}
	for _, uri := range []string{"/requests", "/requests?dev=one", "/requests?rid=1", "/requests?dev=one&rid=a:b", "/requests?dev=one&rid=1&rlen=1024", "/requests?dev=one&rid=1&x", "/requests?dev=&rid=1", "/requests?dev=one&rid=" + strings.Repeat("r", 65)} {
		if m := p.do(message.POST, uri); m.Code != message.BadOption || len(m.Payload) == 0 {
			t.Errorf("%s: %s", uri, m.Code)
		}
	}
	if m := p.do(message.POST, "/requests?dev=one&rid=1", option{message.Accept, uint32(message.XML)}); m.Code != message.NotAcceptable {
		t.Errorf("XML: %s", m.Code)
	}
}

func TestEcho(t *testing.T) {
	n := serve(t, node.Config{TCP: []string{"127.0.0.1:0"}, Listen: []string{"127.0.0.1:0"}, Workers: 1, EchoDelay: true})
	p := dialStream(t, n, 1, nil, stream.Settings{})
	text := option{message.ContentFormat, uint32(message.Text)}
	for _, c := range []struct {
		code               message.Code
		uri, payload, want string
		status             message.Code
	}{
		{message.POST, "/echo", "hello", "hello", message.Changed},
		{message.POST, "/echo?rlen=8", "hello", "hello***", message.Changed},
		{message.POST, "/echo?rlen=2", "hello", "he", message.Changed},
		{message.POST, "/echo?ack", "hello", "hello", message.Changed},
		{message.POST, "/echo?delay=20", "hello", "hello", message.Changed},
		{message.POST, "/echo?keep&id=one", "kept", "kept", message.Changed},
		{message.POST, "/echo?keep", "mine", "mine", message.Changed},
		{message.GET, "/echo/one", "", "kept", message.Content},
		{message.GET, "/echo/127.0.0.1", "", "mine", message.Content},
		{message.GET, "/echo", "", "</echo/one>;ct=42;obs,</echo/127.0.0.1>;ct=42;obs", message.Content},
		{message.DELETE, "/echo/one", "", "", message.Deleted},
		{message.GET, "/echo/one", "", "nothing is kept under this name", message.NotFound},
		{message.POST, "/echo?x=1", "", "", message.BadOption},
		{message.POST, "/echo?delay=0", "", "", message.BadOption},
		{message.POST, "/echo?id=a%2Fb&keep", "", "", message.BadOption},
		{message.POST, "/telemetry", "", "telemetry published!", message.Changed},
		{message.POST, "/event", "", "event published!", message.Changed},
	} {
		var options []option
		if c.payload != "" && !strings.Contains(c.uri, "?") {
			options = append(options, text)
		}
		m := p.do(c.code, c.uri, c.payload, options...)
		if got := strings.ReplaceAll(string(m.Payload), `"`, ""); m.Code != c.status || c.status != message.BadOption && got != c.want {
			t.Errorf("%s %s: %s %q, want %s %q", c.code.Name(), c.uri, m.Code, m.Payload, c.status, c.want)
		}
	}
}

func TestDiagnose(t *testing.T) {
	n := serve(t, node.Config{TCP: []string{"127.0.0.1:0"}, Listen: []string{"127.0.0.1:0"}, Workers: 1, Diagnose: true})
	p := dialStream(t, n, 1, nil, stream.Settings{})
	get := func(uri string, format message.Format) message.Message {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			m := p.do(message.GET, uri, "", option{message.Accept, uint32(format)})
			if m.Code != message.ServiceUnavailable || time.Now().After(end) { // the counters were not read yet
				return m
			}
		}
	}
	var all map[string]json.RawMessage
	if m := get("/diagnose", message.JSON); json.Unmarshal(m.Payload, &all) != nil || len(all) != 4 || all[n.Addresses()[1].URI] == nil {
		t.Errorf("%s", m.Payload)
	}
	if m := get("/diagnose/1", message.Text); !strings.Contains(string(m.Payload), "\nstreams.connections: ") || strings.Contains(string(m.Payload), "engine.") {
		t.Errorf("%s", m.Payload)
	}
	if m := get("/diagnose", message.CBOR); m.Code != message.Content || m.Payload[0] != 0xa4 {
		t.Errorf("%s %x", m.Code, m.Payload)
	}
	if m := get("/diagnose/2", message.Text); m.Code != message.NotFound {
		t.Errorf("%s", m.Code)
	}
}

// A client queries the server for requests, and answers them: over UDP confirmable ones, over TCP plain ones.
func TestReverseRequest(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, TCP: []string{"127.0.0.1:0"}, Workers: 1})
	udp, tcp := dial(t, n), dialStream(t, n, 1, nil, stream.Settings{})
	const count = 5
	for name, c := range map[string]struct {
		send func([]byte)
		next func() message.Message
		kind message.Type
	}{
		"udp": {udp.send, udp.receive, message.Con},
		"tcp": {func(b []byte) {
			if err := tcp.conn.Send(b); err != nil {
				t.Error(err)
			}
		}, tcp.next, message.Non},
	} {
		c.send(udp.request(message.POST, fmt.Sprintf("/reverse-request?req=%d&res=feed-CON/x&rlen=9", count), ""))
		for changed, answered := false, 0; !changed || answered < count; {
			m := c.next()
			if m.Code == message.Changed {
				changed = true
				continue
			}
			path, query := pathAndQuery(&m)
			if m.Code != message.GET || m.Type != c.kind || path != "feed-CON/x" || query != "rlen=9" {
				t.Fatalf("%s: %s %s %q %q", name, m.Type, m.Code, path, query)
			}
			var b message.Builder
			b.Reset(make([]byte, 0, 64), message.Ack, message.Content, m.ID, m.Token)
			b.Payload([]byte("feed"))
			answer, _ := b.Bytes()
			c.send(answer)
			answered++
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		m := udp.do(message.POST, "/reverse-request")
		if want := "10 reverse-requests, 10 sent, 0 pending."; string(m.Payload) == want {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%s, want %s", m.Payload, want)
		}
	}
	if s := n.Status().Reverse; s.RequestsAsked != 10 || s.RequestsSent != 10 || s.RequestsPending != 0 || s.RequestsRefused != 0 {
		t.Errorf("the status: %+v", s)
	}
	for _, uri := range []string{"/reverse-request?req=1", "/reverse-request?res=x", "/reverse-request?req=-1&res=x", "/reverse-request?req=99999999&res=x"} {
		if m := udp.do(message.POST, uri); m.Code != message.BadOption {
			t.Errorf("%s: %s", uri, m.Code)
		}
	}
}

// pathAndQuery are those of a request, without the slash in front and the question mark.
func pathAndQuery(m *message.Message) (path, query string) {
	var segments, queries []string
	for options := m.Options(); options.Next(); {
		switch options.ID() {
		case message.URIPath:
			segments = append(segments, string(options.Value()))
		case message.URIQuery:
			queries = append(queries, string(options.Value()))
		}
	}
	return strings.Join(segments, "/"), strings.Join(queries, "&")
}

// What a client asks for is added to what it has asked for before, of four resources at most. What comes in blocks is fetched to its end. An
// error of the client ends the run of that resource.
func TestReverseRequestsAddUp(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1})
	c := dial(t, n)
	var asked []message.Message // requests of the server that are still to be answered
	post := func(queries string, want message.Code) {
		t.Helper()
		c.send(c.request(message.POST, "/reverse-request?"+queries, ""))
		for {
			m := c.receive()
			if m.Code != message.GET {
				if m.Code != want {
					t.Fatalf("%s: %s, want %s", queries, m.Code, want)
				}
				return
			}
			asked = append(asked, m)
		}
	}
	answer := func(m *message.Message, code message.Code, option message.OptionID, value uint32) {
		var b message.Builder
		b.Reset(make([]byte, 0, 64), message.Ack, code, m.ID, m.Token)
		b.Uint(option, value)
		wire, _ := b.Bytes()
		c.send(wire)
	}
	post("req=3&res=a", message.Changed)
	post("req=2&res=b", message.Changed)
	post("req=2&res=a", message.Changed)
	post("req=100&res=missing", message.Changed)
	post("req=1&res=c", message.Changed)
	post("req=1&res=d", message.ServiceUnavailable)
	post("req=16777216&res=a", message.ServiceUnavailable)
	post("req=1&res=c", message.Changed)
	var got []string
	blocks := 0
	for len(got) < 10 {
		var m message.Message
		if len(asked) > 0 {
			m, asked = asked[0], asked[1:]
		} else {
			m = c.receive()
		}
		path, _ := pathAndQuery(&m)
		if block, ok := m.Uint(message.Block2); ok { // the second one of b
			blocks++
			answer(&m, message.Content, message.Block2, block)
			continue
		}
		if got = append(got, path); m.Code != message.GET {
			t.Fatalf("%s %s after %q", m.Code, path, got)
		}
		switch path {
		case "missing":
			answer(&m, message.NotFound, message.MaxAge, 1)
		case "b":
			answer(&m, message.Content, message.Block2, 8) // and more
		default:
			answer(&m, message.Content, message.MaxAge, 1)
		}
	}
	if blocks != 2 {
		t.Errorf("%d further blocks, want 2", blocks)
	}
	if want := "a a a a a b b missing c c"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
	for s := n.Status().Reverse; s.RequestsAsked != 109 || s.RequestsSent != 10 || s.RequestsPending != 0 || s.RequestsFailed != 1 || s.RequestsRefused != 2; s = n.Status().Reverse {
		if m := c.do(message.POST, "/reverse-request"); m.Code != message.Changed {
			t.Fatalf("%+v", s)
		}
	}
}

// Over TCP the server observes its client too: nothing is confirmable, and sequence numbers have no meaning (RFC 8323 section 7).
func TestReverseObserveOverTCP(t *testing.T) {
	n := serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, TCP: []string{"127.0.0.1:0"}, Workers: 1})
	p := dialStream(t, n, 1, nil, stream.Settings{})
	say := func(token []byte) {
		t.Helper()
		var b message.Builder
		b.Reset(make([]byte, 0, 64), message.Non, message.Content, 0, token)
		b.Uint(message.Observe, 0)
		datagram, err := b.Bytes()
		if err != nil || p.conn.Send(datagram) != nil {
			t.Fatal(err)
		}
	}
	if err := p.conn.Send(dial(t, n).request(message.POST, "/reverse-observe?obs=2&res=feed", "")); err != nil {
		t.Fatal(err)
	}
	get := p.next()
	if value, ok := get.Uint(message.Observe); get.Code != message.GET || !ok || value != 0 {
		t.Fatalf("%s, Observe %d %t", get.Code, value, ok)
	}
	token := bytes.Clone(get.Token)
	say(token)
	if m := p.next(); m.Code != message.Changed || string(m.Payload) != hex.EncodeToString(token) {
		t.Fatalf("%s %q", m.Code, m.Payload)
	}
	say(token)
	say(token)
	if m := p.next(); m.Code != message.GET || string(m.Token) != string(token) { // it registers again
		t.Fatalf("%s %x", m.Code, m.Token)
	}
}
