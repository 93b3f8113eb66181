package node

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// noWorker is a worker that sends nothing.
type noWorker struct{}

func (noWorker) Send(*engine.Peer, []byte) bool { return true }
func (noWorker) WakeAt(time.Duration)           {}
func (noWorker) Validate(*engine.Peer)          {}
func (noWorker) Post(func()) bool               { return false }

func newTestHandler() *handler {
	cfg := Config{Listen: []string{":0"}, Version: "test"}.WithDefaults()
	l := &listener{cfg: &cfg, benchmark: benchmarkBody(), exponent: cfg.exponent(false)}
	l.tree = l.newTree()
	return newHandler(l, noWorker{}, 1)
}

func benchmarkRequest(tb testing.TB) []byte {
	tb.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, 256), message.Con, message.POST, 1, []byte("token"))
	b.Text(message.URIHost, "server")
	b.Text(message.URIPath, "benchmark")
	b.Uint(message.ContentFormat, 0)
	b.Text(message.URIQuery, "rlen=64")
	b.Payload(bytes.Repeat([]byte("x"), 40))
	wire, err := b.Bytes()
	if err != nil {
		tb.Fatal(err)
	}
	return wire
}

// The hot request costs no allocation from datagram to datagram, large responses included.
func TestServeAllocatesNothing(t *testing.T) {
	h, peer, out := newTestHandler(), new(engine.Peer), make([]byte, 0, engine.MaxPayload)
	request := benchmarkRequest(t)
	mid := uint16(0)
	serve := func() {
		mid++
		request[2], request[3] = byte(mid>>8), byte(mid)
		if reply := h.Serve(peer, request, out, time.Duration(mid)*time.Millisecond); len(reply) < 64 || message.Code(reply[1]) != message.Changed {
			t.Fatalf("reply %x", reply)
		}
	}
	serve() // the session itself
	if n := testing.AllocsPerRun(1000, serve); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func BenchmarkServe(b *testing.B) {
	h, peer, out := newTestHandler(), new(engine.Peer), make([]byte, 0, engine.MaxPayload)
	request := benchmarkRequest(b)
	mid, now := uint16(0), time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		mid++
		now += 10 * time.Microsecond
		request[2], request[3] = byte(mid>>8), byte(mid)
		h.Serve(peer, request, out, now)
	}
}

// The fields of a session that moved and came through another node, in Californium's order and in every format.
func TestContextFields(t *testing.T) {
	id := uint32(2)
	info := engine.Info{
		Addr: netip.MustParseAddrPort("[::ffff:10.0.0.1]:40163"), PrevAddr: netip.MustParseAddrPort("10.0.0.1:500"), Secure: true,
		Identity: `cali."<30>`, Suite: "TLS_PSK_WITH_AES_128_CCM_8", HasCID: true, ReadCID: []byte{2, 0xf9, 0xcf}, WriteCID: nil,
		Router: netip.MustParseAddrPort("10.0.0.9:5884"), ExtendedMasterSecret: true,
	}
	short := contextOf(&info, &id, "1.2", false)
	want := "ip: 10.0.0.1\nport: 40163\nnode-id: 2\npeer: cali.\"<30>\ncipher-suite: TLS_PSK_WITH_AES_128_CCM_8\n" +
		"read-cid: 02F9CF\nwrite-cid: \nvia: dtls-cid-router\nserver: Weir 1.2"
	if got := string(render(message.Text, "context", short)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	long := contextOf(&info, &id, "1.2", true)
	for format, want := range map[message.Format]string{
		message.JSON: `{"ip":"10.0.0.1","port":40163,"node-id":2,"peer":"cali.\"\u003c30\u003e","cipher-suite":"TLS_PSK_WITH_AES_128_CCM_8","read-cid":"02F9CF",` +
			`"write-cid":"","via":"dtls-cid-router","secure-renegotiation":false,"ext-master-secret":true,"prev-ip":"10.0.0.1","prev-port":500,"server":"Weir 1.2"}`,
		message.XML: `<context ip="10.0.0.1" port="40163" node-id="2" peer="cali.&#34;&lt;30&gt;" cipher-suite="TLS_PSK_WITH_AES_128_CCM_8" read-cid="02F9CF" ` +
			`write-cid="" via="dtls-cid-router" secure-renegotiation="false" ext-master-secret="true" prev-ip="10.0.0.1" prev-port="500" server="Weir 1.2" />`,
	} {
		if got := string(render(format, "context", long)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", format, got, want)
		}
	}
	small := []field{{"port", 40163}, {"via", "x"}, {"on", true}, {"n", 23}, {"m", 24}}
	if got := hex.EncodeToString(render(message.CBOR, "context", small)); got != "a5"+"64706f7274"+"199ce3"+"63766961"+"6178"+"626f6e"+"f5"+"616e"+"17"+"616d"+"1818" {
		t.Errorf("CBOR %s", got)
	}
}

// Another implementation reads what a server sends in CBOR; ports are signed, as Californium sends them.
func TestCBORIsRead(t *testing.T) {
	head, groups := []field{{"a", 0}, {"b", 65536}}, []group{{"coap://[::1]:1", []field{{"c", 1 << 40}}}}
	history := []received{{"R1", 1 << 41, netip.MustParseAddrPort("127.0.0.1:60000")}, {"R2", 1<<41 + 1, netip.MustParseAddrPort("[::1]:500")}}
	for want, encoded := range map[string][]byte{
		`{"ip": "::1", "on": false, "x": "?", "n": 255, "m": 256}`:     render(message.CBOR, "context", []field{{"ip", "::1"}, {"on", false}, {"x", "\xff"}, {"n", 255}, {"m", 256}}),
		`{"a": 0, "b": 65536, "coap://[::1]:1": {"c": 1099511627776}}`: renderGroups(message.CBOR, head, groups),
		`[{"systemstart": 1099511627776}, {"rid": "R1", "time": 2199023255552, "ep": h'7f000001', "port": -5536}, ` +
			`{"rid": "R2", "time": 2199023255553, "ep": h'00000000000000000000000000000001', "port": 500}]`: receivedCBOR(1<<40, history, true),
		`[{"systemstart": 1}, {"rid": "R1", "time": 2199023255552}]`: receivedCBOR(1, history[:1], false),
	} {
		if got, err := cbor.Diagnose(encoded); err != nil || got != want {
			t.Errorf("%s, %v\nwant %s", got, err, want)
		}
	}
}

func FuzzServe(f *testing.F) {
	f.Add(benchmarkRequest(f))
	f.Add([]byte("\x41\x01\x00\x01\xaa\xbb.well-known\x04core\x49href=/my*"))
	f.Add([]byte("\x41\x01\x00\x01\xaa\xb7context\x61\x3c"))
	h, peer, out := newTestHandler(), new(engine.Peer), make([]byte, 0, 2048)
	f.Fuzz(func(t *testing.T, datagram []byte) {
		reply := h.Serve(peer, datagram, out, 0)
		h.Tick(0)
		var m message.Message
		if err := message.Parse(reply, &m); len(reply) > 0 && err != nil {
			t.Fatalf("%x answered with %x: %v", datagram, reply, err)
		}
	})
}
