package coap

import (
	"encoding/hex"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// hostile makes datagrams that are random, or almost what a port expects.
type hostile struct {
	random *rand.Rand
	seeds  [][]byte
	fixed  int // first bytes of a seed that stay: where a frame is to be sent
}

func (h *hostile) next() []byte {
	if h.fixed == 0 && h.random.IntN(4) == 0 {
		b := make([]byte, h.random.IntN(1400))
		for i := range b {
			b[i] = byte(h.random.Uint32())
		}
		return b
	}
	b := append([]byte(nil), h.seeds[h.random.IntN(len(h.seeds))]...)
	for range h.random.IntN(6) {
		if i := h.random.IntN(len(b)); i >= h.fixed {
			b[i] = byte(h.random.Uint32())
		}
	}
	switch h.random.IntN(4) {
	case 0:
		b = b[:max(h.fixed, h.random.IntN(len(b)+1))]
	case 1:
		b = append(b, b[h.fixed:]...) // a second record, or rubbish behind the message
	}
	return b
}

const (
	cidRecord    = "19fefd000100000000000902aabbccddee0018112233445566778899aabbccddeeff00112233445566778899aabb"
	ownRecord    = "19fefd000100000000000901aabbccddee0018112233445566778899aabbccddeeff00112233445566778899aabb"
	plainRecord  = "17fefd00010000000000090018112233445566778899aabbccddeeff00112233445566778899aabb"
	alertRecord  = "15fefd00000000000000010002022f"
	finishRecord = "16fefd0000000000000003002110000015000200000000001500136578616d706c652d6964656e746974792d78797a" + "14fefd000000000000000400010116fefd0001000000000000002800112233445566778899aabbccddeeff00112233445566778899aabbccddeeff0011223344556677"
	getContext   = "44011234aabbccddb7636f6e74657874"
	postBench    = "42021235aabbb962656e63686d61726b04726c656e3d3430ff68656c6c6f"
	pingMessage  = "40001236"
)

func unhexAll(t testing.TB, texts ...string) [][]byte {
	t.Helper()
	var all [][]byte
	for _, text := range texts {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// frames wraps records for the management port; the client they name is sink, so that nothing leaves this test.
func frames(sink netip.AddrPort, records [][]byte) (all [][]byte) {
	for _, kind := range []byte{cluster.TypeIn, cluster.TypeOut} {
		for _, r := range records {
			all = append(all, append(cluster.AppendHeader(nil, kind, sink), r...))
		}
	}
	return all
}

// attack sends n datagrams from a socket of its own to address.
func attack(t *testing.T, from *net.UDPConn, address string, n int, h *hostile) {
	t.Helper()
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address))
	for range n {
		if _, err := from.WriteTo(h.next(), to); err != nil {
			t.Fatal(err)
		}
	}
}

// 10,000 random and mutated datagrams at every port, at the management port also from the address of a node: nothing panics,
// memory stays bounded, and the service goes on, for old sessions and new ones.
func TestHostileDatagrams(t *testing.T) {
	clitest.TakesSeconds(t)
	addresses := clitest.FreeAddresses(t, 7)
	plain, vip := addresses[4], addresses[5]
	server := clitest.Start(t, "node", "coap", "server", "--workers", "1", "--dtls-cluster", clitest.ClusterArgs(addresses[:4], 0))
	plainServer := clitest.Start(t, "plain", "coap", "server", "--workers", "1", "--listen", plain, "--dtls", addresses[6])
	nat := clitest.Start(t, "nat", "nat", vip, "--", addresses[0], "--max-entries", "64")

	listen := func(address string) *net.UDPConn {
		conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	sink := listen("127.0.0.1:0")
	sinkAddress := sink.LocalAddr().(*net.UDPAddr).AddrPort()
	peerNode := listen(addresses[3]) // node 2 of the cluster is this test
	old := newOldSession(t, addresses[0])
	records := append(unhexAll(t, cidRecord, ownRecord, plainRecord, alertRecord, finishRecord), old.hello, old.seal(t), old.seal(t))
	messages := unhexAll(t, getContext, postBench, pingMessage)
	pings := unhexAll(t, "3d0200000001", "3c0200000001", "3d02000000", "3d01000000")
	random := rand.New(rand.NewPCG(1, 2))

	before := map[*clitest.Process]uint64{}
	for _, p := range []*clitest.Process{server, plainServer, nat} {
		before[p] = resident(t, p)
	}
	for _, port := range []struct {
		name, address string
		from          *net.UDPConn
		hostile       hostile
	}{
		{"DTLS", addresses[0], sink, hostile{random, records, 0}},
		{"management, stranger", addresses[1], sink, hostile{random, append(frames(sinkAddress, records), pings...), 0}},
		{"management, node: frames", addresses[1], peerNode, hostile{random, frames(sinkAddress, records), 8}},
		{"management, node: pings and rubbish", addresses[1], peerNode, hostile{random, append(records, pings...), 1}},
		{"plain", plain, sink, hostile{random, append(messages, records...), 0}},
		{"NAT", vip, sink, hostile{random, records, 0}},
	} {
		t.Run(port.name, func(t *testing.T) {
			for range 10 { // in portions, with a request in between: a burst is not only dropped by a full socket
				attack(t, port.from, port.address, 1000, &port.hostile)
				uri := "coaps://" + addresses[0] + "/mycontext"
				if port.address == plain {
					uri = "coap://" + plain + "/context"
				} else if port.address == vip {
					uri = "coaps://" + vip + "/mycontext"
				}
				x, err := client.Do(t.Context(), client.RequestConfig{URI: uri, AckTimeout: 200 * time.Millisecond})
				if err != nil {
					t.Fatalf("no service after the attack: %v", err)
				}
				var m message.Message
				if err := message.Parse(x.Response, &m); err != nil || m.Code != message.Content {
					t.Fatalf("%v %s", err, m.Code)
				}
			}
		})
	}
	old.ask(t)
	for _, p := range []*clitest.Process{server, plainServer, nat} {
		p.Alive()
		after := resident(t, p)
		t.Logf("%s: %d kB before, %d kB after", p.Name, before[p]>>10, after>>10)
		if after > before[p]+64<<20 {
			t.Errorf("%s grew from %d to %d kB", p.Name, before[p]>>10, after>>10)
		}
	}
	s := nodeStatus(server)
	t.Logf("node: %+v", s.Engine)
	t.Logf("cluster: %+v", *s.Cluster)
	if s.Cluster.Strangers == 0 || s.Cluster.ProcessedForwarded == 0 || s.Cluster.SentBackwarded == 0 || s.Engine.Malformed == 0 ||
		s.Engine.BadMACs == 0 || s.Engine.Replays == 0 || s.Engine.HelloVerifies < 100 {
		t.Errorf("the attack did not get through: %+v %+v", s.Engine, *s.Cluster)
	}
}

// oldSession is a session from before the attacks; its records are copied and mutated, and it must work after them.
type oldSession struct {
	conn        net.Conn
	hello       []byte // its first datagram
	association *record.Association
	scratch     record.Scratch
	count       uint16
}

func newOldSession(t *testing.T, address string) *oldSession {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	o := &oldSession{conn: conn}
	shake, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.old"), Key: []byte(client.DefaultSecret), OfferCID: true})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	send := func(datagram []byte) {
		if o.hello == nil {
			o.hello = append(o.hello, datagram...)
		}
		conn.Write(datagram)
	}
	shake.Start(0, send)
	for in := make([]byte, 2048); ; {
		if done, err := shake.Done(); err != nil {
			t.Fatal(err)
		} else if done {
			o.association = shake.Result().Association
			return o
		}
		conn.SetReadDeadline(start.Add(shake.Deadline()))
		if n, err := conn.Read(in); err == nil {
			shake.Receive(&o.scratch, in[:n], time.Since(start), send)
		} else {
			shake.Timeout(&o.scratch, time.Since(start), send)
		}
	}
}

// seal makes the record of one request.
func (o *oldSession) seal(t *testing.T) []byte {
	t.Helper()
	o.count++
	var b message.Builder
	b.Reset(make([]byte, 0, 64), message.Con, message.GET, o.count, []byte{byte(o.count >> 8), byte(o.count)})
	b.Text(message.URIPath, "mycontext")
	request, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 256)
	head := o.association.HeadRoom()
	datagram, err := o.association.Seal(&o.scratch, record.ApplicationData, buffer, head, copy(buffer[head:], request))
	if err != nil {
		t.Fatal(err)
	}
	return datagram
}

// through sends what follows to another address, from a new port.
func (o *oldSession) through(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	o.conn = conn
}

// ask makes a request in the session and waits for its answer.
func (o *oldSession) ask(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for in := make([]byte, 2048); time.Now().Before(deadline); {
		o.conn.Write(o.seal(t))
		o.conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := o.conn.Read(in)
		if err != nil {
			continue
		}
		var r record.Record
		if _, err := record.Next(in[:n], 0, &r); err != nil {
			continue
		}
		if _, payload, _, verdict := o.association.Open(&o.scratch, &r); verdict == record.Opened {
			var m message.Message
			if message.Parse(payload, &m) == nil && m.Code == message.Content {
				return
			}
		}
	}
	t.Error("a session from before the attacks gets no answer")
}

func resident(t *testing.T, p *clitest.Process) uint64 {
	t.Helper()
	usage, err := procstat.Of(p.Cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return usage.ResidentBytes
}
