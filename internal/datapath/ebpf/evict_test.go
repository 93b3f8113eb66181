package ebpf

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// traffic is a data path in the test's clock, and packets for it.
type traffic struct {
	t   *testing.T
	w   *world
	d   *Datapath
	now time.Duration
}

// send gives one packet in text form to the program; it wants a reason, if one is named, and returns what became of it.
func (f *traffic) send(line, want string) (reason string, backend string, out []byte) {
	f.t.Helper()
	r, err := f.w.packet(f.d, text(f.t, line), false, f.now)
	if err != nil {
		f.t.Fatalf("%s: %v", line, err)
	}
	if want != "" && r.Reason.String() != want {
		f.t.Errorf("%s: %s, want %s", line, r.Reason, want)
	}
	return r.Reason.String(), r.Backend, r.Out
}

// answer is the backend's reply to a packet that left, as text.
func (f *traffic) answer(out []byte, flags string) string {
	f.t.Helper()
	var p packet.Packet
	if err := packet.Parse(out, &p); err != nil {
		f.t.Fatal(err)
	}
	back := p.Key.Reverse()
	if p.Kind == packet.KindTCP {
		return fmt.Sprintf("tcp %s > %s flags=%s", back.Source(), back.Destination(), flags)
	}
	return fmt.Sprintf("udp %s > %s 0a0b", back.Source(), back.Destination())
}

// flood sends n packets, each from a source of its own.
func (f *traffic) flood(frame []byte, first, n int) {
	f.t.Helper()
	program := f.d.program(f.d.config.Hook)
	for i := first; i < first+n; i++ {
		binary.BigEndian.PutUint32(frame[14+12:], 100<<24|uint32(i))
		if _, err := program.Run(&ebpf.RunOptions{Data: frame, Repeat: 1}); err != nil {
			f.t.Fatal(err)
		}
	}
	if _, err := f.w.verdictOf(f.d); err != nil {
		f.t.Fatal(err)
	}
}

const floodSpec = `
limits: {flows: 2000}
services:
- name: nat
  mode: nat
  vips:
  - {address: "192.0.2.1", protocol: udp, port: 80}
  - {address: "192.0.2.1", protocol: tcp, port: 80}
  backends: [{name: a, address: "10.1.0.1", port: 7000}, {name: b, address: "10.1.0.2", port: 7000}]
- name: cid
  mode: nat
  vips: [{address: "192.0.2.2", protocol: udp, port: 5684}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  backends: [{name: a, address: "10.2.0.1", nodes: [1]}, {name: b, address: "10.2.0.2", nodes: [2]}]
- name: dsr
  mode: l2dsr
  vips: [{address: "192.0.2.3", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.3.0.1"}, {name: b, address: "10.3.0.2"}]
`

// cidRecord is a DTLS 1.2 record with a connection id of an owner.
func cidRecord(owner int) string {
	return fmt.Sprintf("19fefd0001000000000007%02x0a0b0c0d0e0004aabbccdd", owner)
}

// TestRootFloodOfFlows: six and twenty times as many unanswered flows as the table may hold, in a second of the test's
// clock. Old flows go on, new clients are answered, sessions that move to new addresses keep their server.
func TestRootFloodOfFlows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		for _, n := range []int{12000, 40000} {
			for _, kind := range []string{"udp", "syn", "cid"} {
				t.Run(fmt.Sprint(hook, "/", kind, "/", n), func(t *testing.T) { flooded(t, w, hook, kind, n) })
			}
		}
	}
}

func flooded(t *testing.T, w *world, hook attach.Hook, kind string, n int) {
	f := &traffic{t: t, w: w, d: w.serving(t, hook, floodSpec)}
	before := f.d.Counters()
	var full evict.Full
	var log strings.Builder
	f.d.log = slog.New(slog.NewTextHandler(&log, nil))
	f.d.watchFull(f.d.tables, &full)
	udp := func(host int) string { return fmt.Sprintf("udp 10.0.0.%d:5000 > 192.0.2.1:80 01", host) }
	session := func(client, moved int) string {
		return fmt.Sprintf("udp 10.0.%d.%d:5000 > 192.0.2.2:5684 %s", 1+moved, client, cidRecord(1+client%2))
	}
	const old, sessions, rounds = 30, 50, 100
	for i := range old {
		_, _, out := f.send(udp(i), "maglev")
		f.send(f.answer(out, ""), "reply")
		f.send(fmt.Sprintf("udp 10.0.0.%d:5000 > 192.0.2.3:80 01", i), "maglev")
		f.send(fmt.Sprintf("udp 10.0.0.%d:5000 > 192.0.2.3:80 01", i), "conntrack")
	}
	spoofed := map[string]string{
		"udp": "udp 100.0.0.1:5000 > 192.0.2.1:80 csum=0 01",
		"syn": "tcp 100.0.0.1:5000 > 192.0.2.1:80 flags=syn",
		"cid": "udp 100.0.0.1:5000 > 192.0.2.2:5684 csum=0 " + cidRecord(1),
	}
	frame := frameOf(text(t, spoofed[kind]))
	newAnswered, newTCP, moved := 0, 0, 0
	for round := range rounds {
		// Answers take ten milliseconds.
		client := fmt.Sprintf("udp 10.1.%d.1:5000 > 192.0.2.1:80 01", round)
		_, _, request := f.send(client, "")
		reason, _, syn := f.send(fmt.Sprintf("tcp 10.1.%d.1:5000 > 192.0.2.1:80 flags=syn", round), "")
		if reason != "maglev" {
			syn = nil
		}
		_, _, record := f.send(session(round%sessions, round/sessions), "cid")
		f.flood(frame, round*n/rounds, n/rounds)
		f.now += 10 * time.Millisecond
		if request != nil {
			if reason, _, _ := f.send(f.answer(request, ""), ""); reason == "reply" {
				newAnswered++
			}
		}
		if syn != nil {
			if reason, _, _ := f.send(f.answer(syn, "syn,ack"), ""); reason == "reply" {
				newTCP++
			}
			f.send(fmt.Sprintf("tcp 10.1.%d.1:5000 > 192.0.2.1:80 flags=ack", round), "")
		}
		if record != nil {
			if reason, backend, _ := f.send(f.answer(record, ""), ""); reason == "reply" && backend == []string{"a", "b"}[round%sessions%2] {
				moved++
			}
		}
	}
	for i := range old {
		_, _, out := f.send(udp(i), "conntrack")
		f.send(f.answer(out, ""), "reply")
		f.send(fmt.Sprintf("udp 10.0.0.%d:5000 > 192.0.2.3:80 01", i), "conntrack")
	}
	if newAnswered < rounds*95/100 || newTCP < rounds*95/100 {
		t.Errorf("of %d new clients %d of UDP and %d of TCP were answered", rounds, newAnswered, newTCP)
	}
	if moved != rounds {
		t.Errorf("of %d sessions that moved %d were answered", rounds, moved)
	}
	now := f.d.Counters()
	evicted, displaced := now.FlowsEvicted-before.FlowsEvicted, now.FlowsDisplaced-before.FlowsDisplaced
	if evicted == 0 || displaced != 0 {
		t.Errorf("%d flows counted as evicted, %d as displaced", evicted, displaced)
	}
	for range 2 {
		f.d.watchFull(f.d.tables, &full)
	}
	if n := strings.Count(log.String(), "flow table full"); n != 1 || !strings.Contains(log.String(), " configured=2000 ") || !strings.Contains(log.String(), "remedy=") {
		t.Errorf("%d records that the table is full: %s", n, &log)
	}
	t.Logf("answered: %d UDP, %d TCP, %d moved of %d; %d evicted", newAnswered, newTCP, moved, rounds, evicted)
}

// TestRootWhatProvesAFlow: after each conversation twelve other flows come to a table of four; a flow that has proven
// itself is still known then.
func TestRootWhatProvesAFlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	const spec = `
limits: {flows: 4}
services:
- name: nat
  mode: nat
  vips: [{address: "192.0.2.1", protocol: udp, port: 80}, {address: "192.0.2.1", protocol: tcp, port: 80}]
  backends: [{name: a, address: "10.1.0.1"}]
- name: dsr
  mode: l2dsr
  vips: [{address: "192.0.2.3", protocol: udp, port: 80}, {address: "192.0.2.3", protocol: tcp, port: 80}]
  backends: [{name: a, address: "10.3.0.1"}]
`
	for _, c := range []struct {
		name, talk string // <: from the client, >: from the backend; flags of TCP, or udp, ping, icmp
		vip        string
		proven     bool
	}{
		{"nat, unanswered", "<udp <udp <udp", "192.0.2.1", false},
		{"nat, answered", "<udp >udp", "192.0.2.1", true},
		{"nat, an error from the backend", "<udp >icmp", "192.0.2.1", false},
		{"nat, echo unanswered", "<ping <ping", "192.0.2.1", false},
		{"nat, echo answered", "<ping >pong", "192.0.2.1", true},
		{"nat, syn", "<syn <syn", "192.0.2.1", false},
		{"nat, syn answered", "<syn >syn,ack >syn,ack", "192.0.2.1", false},
		{"nat, handshake", "<syn >syn,ack <ack", "192.0.2.1", true},
		{"nat, handshake and end", "<syn >syn,ack <ack >fin,ack", "192.0.2.1", true},
		{"nat, blind handshake", "<syn <ack <ack", "192.0.2.1", false},
		{"nat, blind handshake, refused", "<syn <ack >rst", "192.0.2.1", false},
		{"nat, blind handshake, late answer", "<syn <ack >ack", "192.0.2.1", false},
		{"nat, blind handshake, answer and acknowledgement", "<syn <ack >ack <ack", "192.0.2.1", true},
		{"nat, middle of a connection", "<ack <ack", "192.0.2.1", false},
		{"nat, middle of a connection, answered", "<ack >ack", "192.0.2.1", false},
		{"nat, middle of a connection, goes on", "<ack >ack <ack", "192.0.2.1", true},
		{"nat, refused", "<syn >rst,ack", "192.0.2.1", false},
		{"dsr, one", "<udp", "192.0.2.3", false},
		{"dsr, two", "<udp <udp", "192.0.2.3", true},
		{"dsr, syn", "<syn <syn", "192.0.2.3", false},
		{"dsr, handshake", "<syn <ack", "192.0.2.3", true},
		{"dsr, middle of a connection", "<ack", "192.0.2.3", false},
		{"dsr, middle of a connection, goes on", "<ack <ack", "192.0.2.3", true},
	} {
		for _, hook := range hooks {
			t.Run(fmt.Sprint(hook, "/", c.name), func(t *testing.T) {
				f := &traffic{t: t, w: w, d: w.serving(t, hook, spec)}
				client := func(what string) string {
					switch what {
					case "udp":
						return fmt.Sprintf("udp 10.0.0.1:5000 > %s:80 01", c.vip)
					case "ping":
						return fmt.Sprintf("ping 10.0.0.1 > %s ident=7", c.vip)
					}
					return fmt.Sprintf("tcp 10.0.0.1:5000 > %s:80 flags=%s", c.vip, what)
				}
				var out []byte
				last := ""
				for _, step := range strings.Fields(c.talk) {
					switch what := step[1:]; {
					case step[0] == '<':
						last = what
						_, _, out = f.send(client(what), "")
					case what == "icmp":
						f.send("unreachable 10.1.0.1 about udp 10.0.0.1:5000 > 10.1.0.1:80 01020304", "icmp_reply")
					case what == "pong":
						f.send("pong 10.1.0.1 > 10.0.0.1 ident=7", "reply")
					default:
						f.send(f.answer(out, what), "reply")
					}
				}
				for i := range 12 {
					f.now += 10 * time.Millisecond // older than each of these
					f.send(fmt.Sprintf("udp 10.0.1.%d:5000 > 192.0.2.1:80 01", i), "maglev")
				}
				if last == "syn" {
					last = "ack"
				}
				known := "maglev"
				if c.proven {
					known = "conntrack"
				}
				if last == "ping" { // both are counted as echo: its entry alone knows the answer
					if reason, _, _ := f.send("pong 10.1.0.1 > 10.0.0.1 ident=7", ""); (reason == "reply") != c.proven {
						t.Errorf("the answer: %s", reason)
					}
					return
				}
				f.send(client(last), known)
			})
		}
	}
}

// TestRootProvenFlowsLeaveRoom: where only proven flows would be left, the last stays one that makes room.
func TestRootProvenFlowsLeaveRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		// Each size is a load of the programs of its own. What makes room is the same code on both hooks.
		for _, flows := range map[attach.Hook][]int{attach.HookXDP: {2, 3, 8}, attach.HookTCX: {2, 4, 16}}[hook] {
			t.Run(fmt.Sprint(hook, "/", flows), func(t *testing.T) {
				f := &traffic{t: t, w: w, d: w.serving(t, hook, strings.Replace(floodSpec, "2000", fmt.Sprint(flows), 1))}
				for i := range 30 * flows {
					_, _, out := f.send(fmt.Sprintf("udp 10.0.%d.%d:5000 > 192.0.2.1:80 01", i/200, i%200), "maglev")
					if out != nil {
						f.send(f.answer(out, ""), "reply")
					}
				}
				if c := f.d.Counters(); c.FlowsEvicted == 0 || c.FlowsDisplaced != 0 {
					t.Errorf("%d flows counted as evicted, %d as displaced", c.FlowsEvicted, c.FlowsDisplaced)
				}
			})
		}
	}
}

// TestRootConnectionIDTakesTheLastSlot: in a table of one slot, a proven flow makes room for a live session of its service, and only for that.
func TestRootConnectionIDTakesTheLastSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		f := &traffic{t: t, w: w, d: w.serving(t, hook, strings.Replace(floodSpec, "2000", "1", 1))}
		_, _, out := f.send("udp 10.0.0.1:5000 > 192.0.2.2:5684 "+cidRecord(1), "cid")
		f.send(f.answer(out, ""), "reply")
		f.send("udp 10.0.0.2:5000 > 192.0.2.1:80 01", "flow_table_full")
		f.send("udp 10.0.0.2:5000 > 192.0.2.2:5684 01", "flow_table_full")
		f.send("udp 10.0.0.3:5000 > 192.0.2.3:80 01", "maglev") // nothing to translate: without an entry
		f.send("udp 10.0.0.1:5000 > 192.0.2.2:5684 01", "conntrack")
		_, _, out = f.send("udp 10.0.0.2:5000 > 192.0.2.2:5684 "+cidRecord(1), "cid")
		f.send(f.answer(out, ""), "reply")
		f.send("udp 10.0.0.1:5000 > 192.0.2.2:5684 01", "flow_table_full")
		if c := f.d.Counters(); c.FlowsEvicted != 0 || c.FlowsDisplaced != 1 {
			t.Errorf("%d flows counted as evicted, %d as displaced", c.FlowsEvicted, c.FlowsDisplaced)
		}
		// Another service's flow is not theirs to take.
		f.now += time.Hour
		_, _, out = f.send("udp 10.0.0.1:5000 > 192.0.2.1:80 01", "maglev")
		f.send(f.answer(out, ""), "reply")
		f.send("udp 10.0.0.2:5000 > 192.0.2.2:5684 "+cidRecord(1), "flow_table_full")
	}
}

// TestRootFloodWithoutReplies: flows whose replies are not seen go on by Maglev, without entries, above the service's
// rate, and above the default rate once three quarters of the table are in use.
func TestRootFloodWithoutReplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	const spec = `
limits: {flows: 1024}
services:
- name: dsr
  mode: l2dsr%s
  timeouts: {udp: 16s}
  vips: [{address: "192.0.2.3", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.3.0.1"}]
`
	opened := func(d *Datapath) uint64 { return d.Counters().Backends[lb.Target{Service: "dsr", Backend: "a"}].Opened }
	for _, hook := range hooks {
		frame := frameOf(text(t, "udp 100.0.0.1:5000 > 192.0.2.3:80 csum=0 01"))
		f := &traffic{t: t, w: w, d: w.serving(t, hook, fmt.Sprintf(spec, ""))}
		f.send("udp 10.0.0.1:5000 > 192.0.2.3:80 01", "maglev")
		f.send("udp 10.0.0.1:5000 > 192.0.2.3:80 01", "conntrack")
		size := len(f.d.tables.Flows) * bpf.BucketSlots
		f.flood(frame, 0, size)
		if n := opened(f.d); n != uint64(size)+1 {
			t.Errorf("%d entries of %d in an empty table", n, size)
		}
		f.now += time.Second // user space looks
		f.send("udp 10.0.0.1:5000 > 192.0.2.3:80 01", "conntrack")
		before := opened(f.d)
		f.flood(frame, size, 4000)
		f.now += time.Second
		f.send("udp 10.0.0.1:5000 > 192.0.2.3:80 01", "conntrack")
		f.flood(frame, size+4000, 4000)
		if n := opened(f.d) - before; n != 2*1024/16 {
			t.Errorf("%d entries in two seconds in a crowded table, want 128", n)
		}
		if n := f.d.Counters().Services["dsr"][lb.ReasonMaglev].Packets; n != uint64(size)+8001 {
			t.Errorf("%d packets went by Maglev", n)
		}
		f.now += 20 * time.Second
		before = opened(f.d)
		f.send("udp 10.0.0.1:5000 > 192.0.2.3:80 01", "maglev")
		f.flood(frame, 0, 1000)
		if n := opened(f.d) - before; n != 1001 {
			t.Errorf("%d entries of 1001 after the flood", n)
		}

		f = &traffic{t: t, w: w, d: w.serving(t, hook, fmt.Sprintf(spec, "\n  new_flow_rate: 50")), now: time.Hour}
		f.d.tables.Control.Now = uint64((time.Hour + 24*time.Hour) / time.Millisecond)
		before = opened(f.d)
		f.flood(frame, 1<<20, 1000)
		f.send("udp 10.0.0.1:5000 > 192.0.2.3:80 01", "maglev")
		if n := opened(f.d) - before; n != 50 {
			t.Errorf("%d entries at a rate of 50", n)
		}
	}
}

// TestRootSNATExhausted: a full pool is counted as one where there is a pool, and its search does not hold up other flows.
func TestRootSNATExhausted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	const spec = `
limits: {flows: 1000}
services:
- name: nat
  mode: nat
  timeouts: {udp: 10s}
  vips: [{address: "192.0.2.1", protocol: udp, port: 80}, {address: "192.0.2.1", protocol: tcp, port: 80}]
  snat: {addresses: ["198.18.0.1"], ports: 2000-2099}
  backends: [{name: a, address: "10.1.0.1"}]
`
	for _, hook := range hooks {
		f := &traffic{t: t, w: w, d: w.serving(t, hook, spec)}
		flow := func(i int) string { return fmt.Sprintf("udp 10.0.%d.%d:5000 > 192.0.2.1:80 01", i/100, i%100) }
		granted, refused := 0, 0
		for i := range 400 {
			f.now += 4 * time.Millisecond // one search in each
			switch reason, _, out := f.send(flow(i), ""); reason {
			case "maglev":
				granted++
				f.send(f.answer(out, ""), "reply")
			case "snat_exhausted":
				refused++
			default:
				t.Errorf("flow %d: %s", i, reason)
			}
		}
		if granted != 100 || refused != 300 {
			t.Errorf("%d flows have one of 100 ports, %d were refused", granted, refused)
		}
		searched := func() (next uint32) {
			if err := f.d.tables.Maps[bpf.MapSnatNext].Lookup(uint32(1), &next); err != nil {
				t.Fatal(err)
			}
			return next
		}
		f.now += time.Second
		before := searched()
		for i := range 50 {
			f.send(flow(400+i), "snat_exhausted")
		}
		// Of 16 flows twice 64 ports, once for a free one and once for one of an unproven flow; of the others 8.
		if n := searched() - before; n != 16*2*64+34*8 {
			t.Errorf("%d ports were looked at by turns at once", n)
		}
		for i := range 1000 {
			f.send(flow(400+i), "snat_exhausted")
		}
		if n := searched() - before; n != 16*2*64+240*8 {
			t.Errorf("%d ports were looked at by turns at once, want those of 256 flows", n)
		}
		f.send(flow(0), "conntrack")
		f.send("tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn", "maglev") // its ports are others
		f.now += 11 * time.Second
		f.send(flow(401), "maglev")
		if c := f.d.Counters(); c.FlowsEvicted+c.FlowsDisplaced != 0 {
			t.Errorf("%d flows made room for ports", c.FlowsEvicted+c.FlowsDisplaced)
		}
	}
}

// TestRootConnectionsKeepTheirPorts: in a full SNAT pool connections do not lose their ports to new ones, also where the flow
// table may not note that they have proven themselves, because their bucket has no slot left for new flows (may_prove).
func TestRootConnectionsKeepTheirPorts(t *testing.T) {
	t.Parallel()
	const connections, attempts = 2700, 300
	const spec = `
limits: {flows: 4096}
services:
- name: nat
  mode: nat
  vips: [{address: "192.0.2.1", protocol: tcp, port: 80}]
  snat: {addresses: ["198.18.0.1"], ports: 2000-4699}
  backends: [{name: a, address: "10.1.0.1"}]
`
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		var f *traffic
		client := 0
		packet := func(i int, flags string) (string, []byte) {
			reason, _, out := f.send(fmt.Sprintf("tcp 10.0.0.%d:%d > 192.0.2.1:80 flags=%s", client, 2000+i, flags), "")
			return reason, out
		}
		connected := func() bool {
			client++ // its flows have other hashes than those of the one before
			f = &traffic{t: t, w: w, d: w.serving(t, hook, spec)}
			evicted := f.d.Counters().FlowsEvicted
			for i := range connections {
				reason, out := packet(i, "syn")
				if reason != "maglev" {
					t.Fatalf("%s: connection %d: %s", hook, i, reason)
				}
				f.send(f.answer(out, "syn,ack"), "reply")
				packet(i, "ack")
			}
			return f.d.Counters().FlowsEvicted == evicted && f.d.tables.Fill(f.d.now()).Proven < connections
		}
		for try := 0; !connected(); try++ { // the sets of a table this full overflow with the hashes of some clients
			if try == 20 {
				t.Fatalf("%s: no table holds all connections and has full buckets: the test is for these", hook)
			}
		}
		f.now += 4 * time.Second
		for range attempts {
			f.now += 4 * time.Millisecond // one search in each
			if reason, _ := packet(connections, "syn"); reason != "snat_exhausted" {
				t.Errorf("%s: a new client: %s", hook, reason)
			}
		}
		for i := range connections {
			if reason, _ := packet(i, "ack"); reason != "conntrack" {
				t.Errorf("%s: connection %d has lost its port: %s", hook, i, reason)
			}
		}
	}
}

// TestRootFloodOfAnsweredSYNs: 12,000 SYNs of spoofed sources in a second of the test's clock at a pool of 1,000 ports, a third
// of them held by connections. The backend answers all of them. Connections keep their ports, new clients acknowledge after 10 ms.
func TestRootFloodOfAnsweredSYNs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	const old, rounds, spoofed = 333, 50, 120
	const spec = `
limits: {flows: 20000}
services:
- name: nat
  mode: nat
  vips: [{address: "192.0.2.1", protocol: tcp, port: 80}]
  snat: {addresses: ["198.18.0.1"], ports: 2000-2999}
  backends: [{name: a, address: "10.1.0.1"}]
`
	for _, hook := range hooks {
		f := &traffic{t: t, w: w, d: w.serving(t, hook, spec)}
		opens := func(client string) bool {
			reason, _, out := f.send("tcp "+client+" > 192.0.2.1:80 flags=syn", "")
			if reason != "maglev" {
				return false
			}
			f.send(f.answer(out, "syn,ack"), "reply")
			return true
		}
		still := func(i int) string { return fmt.Sprintf("tcp 10.0.0.1:%d > 192.0.2.1:80 flags=ack", 2000+3*i) }
		for i := range old {
			if !opens(fmt.Sprintf("10.0.0.1:%d", 2000+3*i)) {
				t.Fatalf("%s: connection %d is refused", hook, i)
			}
			f.send(still(i), "conntrack")
		}
		fresh := 0
		for round := range rounds {
			client := fmt.Sprintf("10.1.0.%d:5000", round)
			opened := opens(client)
			for i := range spoofed {
				opens(fmt.Sprintf("100.%d.0.%d:5000", round, i))
				if i%12 == 11 {
					f.now += time.Millisecond
				}
			}
			if reason, _, _ := f.send("tcp "+client+" > 192.0.2.1:80 flags=ack", ""); opened && reason == "conntrack" {
				fresh++
			}
		}
		if fresh < rounds*95/100 {
			t.Errorf("%s: %d of %d new clients connected", hook, fresh, rounds)
		}
		for i := range old {
			f.send(still(i), "conntrack")
		}
		consistent(t, f.d)
		t.Logf("%s: %d of %d new, %d evicted", hook, fresh, rounds, f.d.Counters().FlowsEvicted)
	}
}

// TestRootFloodOfASNATPool: 12,000 spoofed flows in a second of the test's clock at a pool of 1,000 ports. Answered flows
// keep their ports, new clients are answered 10 ms later, and sessions that move by their connection id lose nothing.
func TestRootFloodOfASNATPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	const spec = `
limits: {flows: 20000}
services:
- name: nat
  mode: nat
  vips: [{address: "192.0.2.1", protocol: udp, port: 5684}]
  snat: {addresses: ["198.18.0.1"], ports: 2000-2999}
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  backends: [{name: a, address: "10.1.0.1", port: 7000, nodes: [1]}]
`
	const old, rounds, spoofed = 30, 100, 120
	client := func(network, i int) string { return fmt.Sprintf("udp 10.%d.0.%d:5000 > 192.0.2.1:5684 ", network, i) }
	for _, hook := range hooks {
		f := &traffic{t: t, w: w, d: w.serving(t, hook, spec)}
		before := f.d.Counters().FlowsEvicted
		for i := range old {
			_, _, out := f.send(client(0, i)+"01", "maglev")
			f.send(f.answer(out, ""), "reply")
		}
		frame := frameOf(text(t, "udp 100.0.0.1:5000 > 192.0.2.1:5684 csum=0 01"))
		answered := func(request []byte, i int, network byte) int {
			if request == nil {
				return 0
			}
			reason, _, out := f.send(f.answer(request, ""), "")
			if reason == "reply" && out[16] == 10 && out[17] == network && out[19] == byte(i) {
				return 1
			}
			return 0
		}
		fresh, moved := 0, 0
		for round := range rounds {
			_, _, request := f.send(client(1, round)+"01", "")
			_, _, record := f.send(client(2, round)+cidRecord(1), "cid")
			for part := range 10 {
				f.flood(frame, round*spoofed+part*spoofed/10, spoofed/10)
				f.now += time.Millisecond
				f.send(client(0, 0)+"01", "conntrack") // sets the clock
			}
			fresh += answered(request, round, 1)
			moved += answered(record, round, 2)
		}
		if fresh < rounds*95/100 || moved != rounds {
			t.Errorf("%s: of %d each, %d new clients and %d moved sessions were answered", hook, rounds, fresh, moved)
		}
		for i := range old {
			_, _, out := f.send(client(0, i)+"01", "conntrack")
			f.send(f.answer(out, ""), "reply")
		}
		evicted := f.d.Counters().FlowsEvicted - before
		if evicted < 10_000 {
			t.Errorf("%s: %d flows were evicted", hook, evicted)
		}
		consistent(t, f.d)
		t.Logf("%s: %d new, %d moved of %d; %d evicted", hook, fresh, moved, rounds, evicted)
	}
}
