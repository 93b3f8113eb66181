package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/engine"
)

// network carries datagrams between the nodes of a cluster, in virtual time.
type network struct {
	t     testing.TB
	now   time.Duration
	nodes []*running
	// mangle may change what is sent on a link, or return nil to lose it.
	mangle func(from, to netip.AddrPort, datagram []byte) []byte
}

// running is a node. Its worker is the carrier of the node's Cluster.
type running struct {
	worker
	*Cluster
	network *network
	next    time.Duration
	log     bytes.Buffer
}

func at(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 5884)
}

const clusterSecret = "the secret of the cluster"

// start runs a node with the id at an address; change may replace its configuration, which has the secret and no other node.
func (w *network) start(id uint32, address netip.AddrPort, change func(*Config)) *running {
	w.t.Helper()
	cfg := Config{
		Nodes:    []Node{{ID: id, DTLS: ":15784", Management: address.String()}},
		Security: &Security{Secret: []byte(clusterSecret)},
	}
	if change != nil {
		change(&cfg)
	}
	n := &running{network: w}
	var err error
	if n.Cluster, err = New(cfg, id, slog.New(slog.NewTextHandler(&n.log, nil))); err != nil {
		w.t.Fatal(err)
	}
	n.next = w.now
	w.stop(address)
	w.nodes = append(w.nodes, n)
	return n
}

// stop ends the node at an address.
func (w *network) stop(address netip.AddrPort) {
	w.nodes = slices.DeleteFunc(w.nodes, func(n *running) bool { return n.address == address })
}

// group searches for nodes at addresses.
func group(addresses ...netip.AddrPort) func(*Config) {
	return func(cfg *Config) {
		for _, a := range addresses {
			cfg.Group = append(cfg.Group, a.String())
		}
	}
}

func (w *network) at(address netip.AddrPort) *running {
	for _, n := range w.nodes {
		if n.address == address {
			return n
		}
	}
	return nil
}

// deliver carries what the nodes have sent until nothing more is on its way.
func (w *network) deliver() {
	for again := true; again; {
		again = false
		for _, n := range slices.Clone(w.nodes) {
			sent := n.sent
			n.sent = nil
			for _, m := range sent {
				again = true
				w.send(n.address, m.to, m.bytes)
			}
		}
	}
}

// send has a datagram arrive at to, as if from had sent it.
func (w *network) send(from, to netip.AddrPort, datagram []byte) {
	if w.mangle != nil {
		if datagram = w.mangle(from, to, datagram); datagram == nil {
			return
		}
	}
	if n := w.at(to); n != nil {
		n.frame(&n.worker, &n.counters[0], bytes.Clone(datagram), from, w.now)
	}
}

// run lets time pass.
func (w *network) run(d time.Duration) {
	for end := w.now + d; w.now < end; {
		w.now += 50 * time.Millisecond
		for _, n := range slices.Clone(w.nodes) {
			if w.now >= n.next {
				n.next = n.tick(&n.worker, &n.counters[0], w.now)
			}
		}
		w.deliver()
	}
}

// serves reports whether a record that reaches one node arrives at its owner, the node two, and the answer at the client.
func (w *network) serves(one, two *running) bool {
	two.injected, one.raw = nil, nil
	if !one.foreign(&one.worker, &one.counters[0], two.self, record, client) {
		return false
	}
	w.deliver()
	if len(two.injected) != 1 || !bytes.Equal(two.injected[0].bytes, record) || two.injected[0].to != client {
		return false
	}
	reply := bytes.Repeat([]byte{0x17}, 30)
	buf := append(make([]byte, engine.LinkHeadRoom), reply...)
	start, ok := two.wrap(&two.counters[0], buf, engine.LinkHeadRoom, reply, client, two.injected[0].router)
	if !ok {
		return false
	}
	w.send(two.address, two.injected[0].router, buf[start:])
	return len(one.raw) == 1 && bytes.Equal(one.raw[0].bytes, reply) && one.raw[0].to == client
}

// status is what a node knows of another one.
func (n *running) status(address netip.AddrPort) string {
	for _, row := range n.Status() {
		if row.Management == address.String() {
			id := "?"
			if row.ID != nil {
				id = fmt.Sprint(*row.ID)
			}
			return fmt.Sprintf("%s %s secured=%t", id, row.State, row.Secured)
		}
	}
	return "not listed"
}

// logged counts the lines of a node's log with all texts.
func (n *running) logged(texts ...string) (count int) {
	for line := range strings.Lines(n.log.String()) {
		missing := slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
		if !missing {
			count++
		}
	}
	return count
}

func list(id uint32, address netip.AddrPort) func(*Config) {
	return func(cfg *Config) {
		cfg.Nodes = append(cfg.Nodes, Node{ID: id, DTLS: Foreign, Management: address.String()})
	}
}

// A secured pair forwards once it has a session and not before; each frame has the MAC behind its address, and one of which any bit
// that the MAC covers is changed is refused, as is one without MAC, or from another node.
func TestSecuredPair(t *testing.T) {
	w := &network{t: t}
	one, two := w.start(1, at(1), list(2, at(2))), w.start(2, at(2), list(1, at(1)))
	if w.serves(one, two) || !one.foreign(&one.worker, &one.counters[0], 2, record, client) || len(one.sent) != 0 {
		t.Fatal("forwarded without a session")
	}
	w.run(time.Second)
	if !w.serves(one, two) || !w.serves(two, one) {
		t.Fatalf("not served\n%s", one.log.String())
	}
	if got := one.status(at(2)); got != "2 up secured=true" || one.HeaderLength() != 16 {
		t.Errorf("%s, header of %d bytes", got, one.HeaderLength())
	}
	one.foreign(&one.worker, &one.counters[0], 2, record, client)
	frame := one.sent[0].bytes
	one.sent = nil
	if want := append(AppendHeader(nil, TypeIn, client), frame[8:16]...); !bytes.Equal(frame, append(want, record...)) {
		t.Fatalf("frame %x", frame)
	}
	before := two.Stats()
	two.injected = nil
	for i := range frame[1:] {
		forged := bytes.Clone(frame)
		forged[1+i] ^= 1
		w.send(at(1), at(2), forged)
	}
	w.send(at(3), at(2), frame) // of no node
	w.send(at(1), at(2), append(AppendHeader(nil, TypeIn, client), record...))
	w.send(at(1), at(2), append(AppendHeader(nil, TypeOut, client), frame[8:]...)) // the MAC of another type
	w.send(at(1), at(2), AppendPing(nil, Ping{Type: TypePing, Node: 1}))
	after := two.Stats()
	if len(two.injected) != 0 || len(two.raw) != 1 { // that of serves
		t.Errorf("%d forged frames injected, %d sent", len(two.injected), len(two.raw)-1)
	}
	if bad, broken := after.BadForward-before.BadForward, after.DroppedForward-before.DroppedForward; bad+broken != uint64(len(frame)) || broken != 1 ||
		after.BadBackward-before.BadBackward != 1 || after.Strangers-before.Strangers != 1 || after.Malformed-before.Malformed != 1 {
		t.Errorf("of %d: %+v", len(frame), after)
	}
}

// Without MAC, or without security, the frames are those of Californium too; the header is shorter.
func TestUnsecuredAndWithoutMAC(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no MAC":    func(cfg *Config) { cfg.MAC = new(false) },
		"unsecured": func(cfg *Config) { cfg.Security = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := &network{t: t}
			var nodes []*running
			for i := range 2 {
				nodes = append(nodes, w.start(uint32(1+i), at(1+i), func(cfg *Config) {
					group(at(2 - i))(cfg)
					change(cfg)
				}))
			}
			w.run(time.Second)
			if !w.serves(nodes[0], nodes[1]) || !w.serves(nodes[1], nodes[0]) || nodes[0].HeaderLength() != 8 {
				t.Errorf("%s, %s", nodes[0].status(at(2)), nodes[1].status(at(1)))
			}
		})
	}
}

// Clients and nodes with IPv6 addresses, which may be written as IPv4 ones.
func TestSecuredIPv6(t *testing.T) {
	w := &network{t: t}
	first, second := netip.MustParseAddrPort("[2001:db8::1]:5884"), netip.MustParseAddrPort("[2001:db8::2]:5884")
	one, two := w.start(1, first, group(second)), w.start(2, second, group(first))
	w.run(time.Second)
	for peer, header := range map[string]int{"[2001:db8::9]:40000": 28, "[::ffff:192.0.2.9]:40000": 16} {
		two.injected = nil
		one.foreign(&one.worker, &one.counters[0], 2, record, netip.MustParseAddrPort(peer))
		if len(one.sent) != 1 || len(one.sent[0].bytes) != header+len(record) {
			t.Fatalf("%s: %+v", peer, one.sent)
		}
		w.deliver()
		want := netip.MustParseAddrPort(peer)
		if want = netip.AddrPortFrom(want.Addr().Unmap(), want.Port()); len(two.injected) != 1 || two.injected[0].to != want || !bytes.Equal(two.injected[0].bytes, record) {
			t.Errorf("%s: %+v, %+v", peer, two.injected, two.Stats())
		}
	}
}

// Only one of two nodes lists the other, and each has a group of one: both know each other within a second.
func TestGroupOfOneOther(t *testing.T) {
	w := &network{t: t}
	first := w.start(1, at(1), group(at(9))) // no node is there
	w.run(30 * time.Second)
	if first.Ready() || first.status(at(9)) != "? searched secured=false" {
		t.Fatal(first.status(at(9)))
	}
	second := w.start(2, at(2), group(at(1)))
	w.run(time.Second)
	if !w.serves(first, second) || !w.serves(second, first) {
		t.Fatalf("%s, %s\n%s", first.status(at(2)), second.status(at(1)), second.log.String())
	}
	w.run(2 * time.Second)
	if !second.Ready() {
		t.Error("a cluster of two, one of which lists the other, is not complete")
	}
	// A third one that knows the second alone gets to know the first when that pings it, as it does when it is listed or has been found.
	third := w.start(3, at(3), group(at(1), at(2)))
	w.run(time.Second)
	if !w.serves(third, first) || !w.serves(first, third) || !w.serves(second, third) {
		t.Errorf("%s, %s", first.status(at(3)), second.status(at(3)))
	}
}

// A node that restarts at its address serves and is served again within seconds; so does one that comes back elsewhere, whose id moves.
func TestRestartAndMove(t *testing.T) {
	w := &network{t: t}
	one, _ := w.start(1, at(1), group(at(2))), w.start(2, at(2), group(at(1)))
	w.run(time.Second)
	two := w.start(2, at(2), group(at(1)))
	w.run(time.Second)
	if !w.serves(one, two) || !w.serves(two, one) {
		t.Errorf("after a restart: %s, %s", one.status(at(2)), two.status(at(1)))
	}
	w.stop(at(2))
	moved := w.start(2, at(7), group(at(1)))
	w.run(5 * time.Second)
	if !w.serves(one, moved) || !w.serves(moved, one) {
		t.Errorf("after a move: %s, %s\n%s", one.status(at(7)), moved.status(at(1)), one.log.String())
	}
	if got := one.logged("level=INFO", "cluster node has moved", at(7).String(), at(2).String()); got != 1 {
		t.Errorf("logged %d times\n%s", got, one.log.String())
	}
	// One that lists no other, and has lost its sessions: the other one notices that it is silent.
	moved = w.start(2, at(7), nil)
	w.run(12 * time.Second)
	if !w.serves(one, moved) || !w.serves(moved, one) {
		t.Errorf("after a restart without a list: %s, %s\n%s", one.status(at(7)), moved.status(at(1)), one.log.String())
	}
}

// With a secret and a list of ids an address that is not listed gets nothing, though it knows the secret.
func TestListedNodesAlone(t *testing.T) {
	w := &network{t: t}
	one := w.start(1, at(1), list(2, at(2)))
	three := w.start(3, at(3), group(at(1)))
	w.run(20 * time.Second)
	if w.serves(one, three) || one.status(at(3)) != "not listed" || one.Stats().Strangers == 0 || one.Stats().ManagementSent != 0 {
		t.Errorf("%s, %+v", one.status(at(3)), one.Stats())
	}
}

// Two nodes with one id, a node with ours, and a jump of the clock: one line each, however long it lasts, and no node is lost.
func TestOneErrorEach(t *testing.T) {
	w := &network{t: t}
	one := w.start(1, at(1), group(at(2)))
	two := w.start(2, at(2), group(at(1)))
	w.run(2 * time.Second)
	w.start(2, at(3), group(at(1), at(2)))
	w.start(1, at(4), group(at(1), at(2)))
	w.run(time.Minute)
	w.now += time.Hour // the process of the nodes was stopped
	w.run(time.Minute)
	if !w.serves(one, two) || !w.serves(two, one) {
		t.Errorf("%s, %s", one.status(at(2)), two.status(at(1)))
	}
	for n, lines := range map[*running][][]string{
		one: {
			{"level=ERROR", "two cluster nodes have the same id", "other=2", at(2).String(), at(3).String(), "remedy="},
			{"level=ERROR", "another cluster node has the id of this one", "other=1", at(4).String(), "remedy="},
			{"level=WARN", "clock jumped"},
		},
		two: {
			{"level=ERROR", "another cluster node has the id of this one", "other=2", at(3).String(), "remedy="},
			{"level=ERROR", "two cluster nodes have the same id", "other=1", at(1).String(), at(4).String(), "remedy="},
			{"level=WARN", "clock jumped"},
		},
	} {
		for _, line := range lines {
			if got := n.logged(line...); got != 1 {
				t.Errorf("node %d at %s logged %d times %q\n%s", n.self, n.address, got, line, n.log.String())
			}
		}
	}
}

// A node with another secret never becomes a member, and the others say so once.
func TestOtherSecret(t *testing.T) {
	w := &network{t: t}
	one := w.start(1, at(1), group(at(2)))
	two := w.start(2, at(2), func(cfg *Config) {
		group(at(1))(cfg)
		cfg.Security = &Security{Secret: []byte("another")}
	})
	w.run(time.Minute)
	if w.serves(one, two) || w.serves(two, one) || one.Ready() || one.Stats().LinkFailed == 0 {
		t.Errorf("%s, %+v", one.status(at(2)), one.Stats())
	}
	if got := one.logged("level=WARN", "cluster link cannot be secured", at(2).String()); got != 1 {
		t.Errorf("logged %d times\n%s", got, one.log.String())
	}
}

// A reply is not sent to the address of a router that is no longer a member.
func TestRouterHasLeft(t *testing.T) {
	w := &network{t: t}
	unsecured := func(cfg *Config) { cfg.Security = nil }
	one := w.start(1, at(1), func(cfg *Config) { group(at(2))(cfg); unsecured(cfg) })
	w.start(2, at(2), func(cfg *Config) { group(at(1))(cfg); unsecured(cfg) })
	w.run(time.Second)
	buf := make([]byte, 128)
	if _, ok := one.wrap(&one.counters[0], buf, engine.LinkHeadRoom, record, client, at(2)); !ok {
		t.Fatal("not returned through a member")
	}
	if _, ok := one.wrap(&one.counters[0], buf, engine.LinkHeadRoom, record, client, at(3)); ok {
		t.Error("returned through an address without a member")
	}
}

// A frame with MAC costs no allocation on its way.
func TestSecuredAllocations(t *testing.T) {
	w := &network{t: t}
	one, two := w.start(1, at(1), group(at(2))), w.start(2, at(2), group(at(1)))
	w.run(time.Second)
	one.foreign(&one.worker, &one.counters[0], 2, record, client)
	frame := one.sent[0].bytes
	carrier := quiet{buffer: make([]byte, 2048)}
	buf := make([]byte, 256)
	if got := testing.AllocsPerRun(100, func() {
		one.foreign(&carrier, &one.counters[0], 2, record, client)
		two.frame(&carrier, &two.counters[0], frame, at(1), w.now)
		two.wrap(&two.counters[0], buf, engine.LinkHeadRoom, record, client, at(1))
	}); got != 0 || two.Stats().ProcessedForwarded < 100 {
		t.Fatalf("%v allocations, %+v", got, two.Stats())
	}
}

func BenchmarkSecuredFrame(b *testing.B) {
	w := &network{t: b}
	one, two := w.start(1, at(1), group(at(2))), w.start(2, at(2), group(at(1)))
	w.run(time.Second)
	carrier := quiet{buffer: make([]byte, 2048)}
	one.foreign(&one.worker, &one.counters[0], 2, record, client)
	frame := one.sent[0].bytes
	b.ReportAllocs()
	for b.Loop() {
		one.foreign(&carrier, &one.counters[0], 2, record, client)
		two.frame(&carrier, &two.counters[0], frame, at(1), w.now)
	}
}

// FuzzManagement: whatever comes on the management socket, from nodes or strangers, nothing reaches an engine or a client without MAC, no
// node is lost, and a stranger gets no more bytes than it has sent.
func FuzzManagement(f *testing.F) {
	f.Add([]byte{63, 0x73, 0x8f, 4, 127, 0, 0, 1}, true)
	f.Add(append(AppendHeader(nil, TypeOut, client), record...), false)
	f.Add([]byte{61, 2, 0, 0, 0, 1}, true)
	f.Add([]byte{22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1}, false)
	w := &network{t: f}
	one, two := w.start(1, at(1), group(at(2))), w.start(2, at(2), group(at(1)))
	w.run(time.Second)
	f.Fuzz(func(t *testing.T, b []byte, node bool) {
		from := at(66)
		if node {
			from = at(1)
		}
		two.injected, two.raw, two.sent = nil, nil, nil
		w.send(from, at(2), b)
		if len(two.injected)+len(two.raw) != 0 {
			t.Fatalf("taken: %x", b)
		}
		total := 0
		for _, m := range two.sent {
			if total += len(m.bytes); m.to != from {
				t.Fatalf("sent to %s", m.to)
			}
		}
		if total > len(b) {
			t.Fatalf("%d bytes for %d", total, len(b))
		}
		if !w.serves(one, two) {
			t.Fatal("no service afterwards")
		}
	})
}
