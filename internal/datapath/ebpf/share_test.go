package ebpf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

const shareSpec = `
limits: {flows: 2000}
services:
- name: snat
  mode: nat
  timeouts: {tcp_opening: 10s, tcp_closing: 5s, tcp_established: 1h, udp: 60s}
  vips:
  - {address: "192.0.2.1", protocol: tcp, port: 80}
  - {address: "192.0.2.1", protocol: udp, port: 80}
  - {address: "2001:db8::1", protocol: udp, port: 80}
  snat: {addresses: ["198.18.0.1", "2001:db8:9::1"], ports: 2000-2063}
  backends: [{name: a, address: "10.1.0.1", address2: "2001:db8:2::1", port: 7000}, {name: b, address: "10.1.0.2", address2: "2001:db8:2::2", port: 7000}]
- name: nat
  mode: nat
  timeouts: {udp: 60s}
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.1.0.1"}, {name: b, address: "10.1.0.2"}]
`

// sharing is a balancer that gives its flows to another one.
type sharing struct {
	traffic
	follow  func(func(uint64) bool, func([]flow.Change) bool)
	entries map[uint32]flow.Entry // at the other balancer, by number here
}

func newSharing(t *testing.T, hook attach.Hook, spec string) *sharing {
	w := newWorld(t)
	t.Cleanup(w.close)
	d := w.serving(t, hook, spec)
	return &sharing{traffic: traffic{t: t, w: w, d: d}, follow: d.FollowFlows(), entries: map[uint32]flow.Entry{}}
}

// give gives what has changed to another balancer, and returns how many flows were refused for which reasons.
func (s *sharing) give(to *sharing, origin uint64, skip func(uint64) bool) (given int, refused map[string]int) {
	refused = map[string]int{}
	to.now = s.now
	to.tick()
	s.tick()
	s.follow(skip, func(changes []flow.Change) bool {
		for _, c := range changes {
			given++
			if old, ok := s.entries[c.Number]; ok {
				defer delete(s.entries, c.Number)
				if c.Ended {
					to.d.EndFlow(old)
					continue
				}
			}
			answers := make([]flow.Answer, 1)
			to.d.EnterFlows(origin, []flow.Translated{c.Flow}, answers)
			if answers[0].Refusal != flow.Accepted {
				refused[answers[0].Refusal.String()]++
				continue
			}
			if old, ok := s.entries[c.Number]; ok && old != answers[0].Entry {
				to.d.EndFlow(old)
			}
			s.entries[c.Number] = answers[0].Entry
		}
		return true
	})
	return given, refused
}

func (s *sharing) tick() { s.d.tables.Control.Now = uint64((s.now + 24*time.Hour) / s.d.clock.Tick) }

func never(uint64) bool  { return false }
func always(uint64) bool { return true }

// connect opens a proven flow and returns what the backend sees.
func (s *sharing) connect(client, vip string) (out []byte) {
	if client[:3] == "udp" {
		_, _, out = s.send(client+" > "+vip+" 01", "maglev")
		s.send(s.answer(out, ""), "reply")
		return out
	}
	_, _, out = s.send(client+" > "+vip+" flags=syn", "maglev")
	s.send(s.answer(out, "syn,ack"), "reply")
	s.send(client+" > "+vip+" flags=ack", "conntrack")
	return out
}

// listed counts the flows of the list that are marked as given, and the others.
func (s *sharing) listed() (given, own int) {
	s.d.Flows(func(f Flow) bool {
		if f.Given {
			given++
		} else {
			own++
		}
		return true
	})
	return given, own
}

// TestRootSharedFlows: what one balancer gives of its proven flows lets another one, with other numbers and another hash of its
// tables, translate packets of both directions in the same way.
func TestRootSharedFlows(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		a, b := newSharing(t, hook, shareSpec), newSharing(t, hook, shareSpec)
		flows := map[string]string{
			"tcp 10.0.0.1:2000": "192.0.2.1:80", "tcp 10.0.0.2:2000": "192.0.2.1:80", "tcp 10.0.0.3:9": "192.0.2.1:80", "udp 10.0.0.1:2000": "192.0.2.1:80",
			"udp 10.0.0.1:2001": "192.0.2.2:80", "udp [2001:db8:1::1]:2000": "[2001:db8::1]:80",
		}
		seen := map[string][]byte{}
		for client, vip := range flows {
			seen[client] = a.connect(client, vip)
		}
		a.send("udp 10.0.0.7:2000 > 192.0.2.1:80 01", "maglev")        // not answered
		a.send("tcp 10.0.0.7:2000 > 192.0.2.1:80 flags=syn", "maglev") // in its handshake
		if given, refused := a.give(b, 1, always); given != len(flows) || len(refused) > 0 {
			t.Fatalf("%s: %d flows given, want %d; refused %v", hook, given, len(flows), refused)
		}
		if given, _ := a.give(b, 1, always); given != 0 {
			t.Errorf("%s: %d flows given again without a change", hook, given)
		}
		if n := b.d.GivenFlows(); n != len(flows) {
			t.Errorf("%s: %d flows are marked as given, want %d", hook, n, len(flows))
		}
		if given, own := b.listed(); given != len(flows) || own != 0 {
			t.Errorf("%s: the list has %d flows marked as given and %d others, want %d and 0", hook, given, own, len(flows))
		}
		if given, _ := b.give(a, 2, always); given != 0 {
			t.Errorf("%s: %d flows go back to the balancer that gave them", hook, given)
		}
		// A new flow gets none of the source ports in use.
		_, _, other := b.send("tcp 10.0.0.9:2000 > 192.0.2.1:80 flags=syn", "maglev")
		for client, out := range seen {
			if client[:3] == "tcp" && b.answer(out, "ack") == b.answer(other, "ack") {
				t.Errorf("%s: the flow of %s and a new one have the same source port", hook, client)
			}
		}
		for client, vip := range flows {
			tail := " 01"
			if client[:3] == "tcp" {
				tail = " flags=ack"
			}
			if _, _, out := b.send(client+" > "+vip+tail, "conntrack"); b.answer(out, "ack") != b.answer(seen[client], "ack") {
				t.Errorf("%s: %s is translated to %q, was %q", hook, client, b.answer(out, "ack"), b.answer(seen[client], "ack"))
			}
			b.send(b.answer(seen[client], "ack"), "reply")
		}
		if p := b.d.tables.Fill(b.d.now()).Proven; p != len(flows) {
			t.Errorf("%s: %d flows are proven, want %d", hook, p, len(flows))
		}
	}
}

// TestRootSharedFlowsFollow: what becomes of a flow reaches the other balancer: a closed connection, an idle time that began again, an
// end. A flow that is used there is that balancer's own, and goes back to the first one.
func TestRootSharedFlowsFollow(t *testing.T) {
	t.Parallel()
	a, b := newSharing(t, attach.HookTCX, shareSpec), newSharing(t, attach.HookTCX, shareSpec)
	a.connect("tcp 10.0.0.1:2000", "192.0.2.1:80")
	used := a.connect("udp 10.0.0.1:2000", "192.0.2.1:80")
	a.connect("udp 10.0.0.2:2000", "192.0.2.2:80")
	a.give(b, 1, always)

	for range 6 { // six times 20 s, of 60 s
		a.now += 20 * time.Second
		a.send("udp 10.0.0.1:2000 > 192.0.2.1:80 01", "conntrack")
		a.send("udp 10.0.0.2:2000 > 192.0.2.2:80 01", "")
		a.give(b, 1, always)
	}
	b.now += 2 * time.Second
	b.send("udp 10.0.0.1:2000 > 192.0.2.1:80 01", "conntrack") // alive there, and b's from now on
	if given, own := b.listed(); given != 2 || own != 1 {
		t.Errorf("the list has %d flows marked as given and %d others, want 2 and 1", given, own)
	}
	if given, refused := b.give(a, 2, always); given != 1 || len(refused) != 0 {
		t.Errorf("%d flows go back, want the one that was used; refused %v", given, refused)
	}
	a.send("tcp 10.0.0.1:2000 > 192.0.2.1:80 flags=rst", "conntrack")
	if given, _ := a.give(b, 1, always); given != 1 {
		t.Errorf("%d changes, want the closed connection", given)
	}
	b.now += 6 * time.Second
	b.send("tcp 10.0.0.1:2000 > 192.0.2.1:80 flags=ack", "maglev") // was closed, and has expired
	b.send(b.answer(used, ""), "reply")

	// A flow that ends before its time.
	for i := range a.d.tables.Flows {
		for j := range a.d.tables.Flows[i].Slots {
			if meta := a.d.tables.Flows[i].Slots[j].Meta; a.d.tables.Entries[i*bpf.BucketSlots+j].Service == a.d.state.inForce["nat"].Number {
				a.d.tables.ForgetFlow(i*bpf.BucketSlots+j, meta)
			}
		}
	}
	a.give(b, 1, always)
	b.send("udp 10.0.0.2:2000 > 192.0.2.2:80 01", "maglev")
}

const shareSmallSpec = `
limits: {flows: LIMIT}
services:
- name: snat
  mode: nat
  vips:
  - {address: "192.0.2.1", protocol: tcp, port: 80}
  - {address: "192.0.2.1", protocol: udp, port: 80}
  snat: {addresses: ["198.18.0.1"], ports: 2000-2063}
  backends: [{name: a, address: "10.1.0.1", port: 7000}]
`

// TestRootSharedFlowsRefused: what does not fit is refused with its reason, and a proven flow stays.
func TestRootSharedFlowsRefused(t *testing.T) {
	t.Parallel()
	a := newSharing(t, attach.HookTCX, strings.Replace(shareSpec, "2000-2063", "2000-2163", 1))
	b := newSharing(t, attach.HookTCX, strings.Replace(shareSmallSpec, "LIMIT", "2000", 1))
	a.connect("udp 10.0.0.1:2001", "192.0.2.2:80") // another service
	a.connect("udp 10.0.0.1:2100", "192.0.2.1:80") // another source port
	var own []string
	for port := 2005; port < 2015; port++ { // backend b is unknown; of the rest, the source port is taken
		a.connect(fmt.Sprintf("udp 10.0.0.5:%d", port), "192.0.2.1:80")
		own = append(own, fmt.Sprintf("udp 10.0.0.6:%d", port))
		b.connect(own[len(own)-1], "192.0.2.1:80")
	}
	given, refused := a.give(b, 1, always)
	if given != 12 || refused["unknown_service"] != 1 || refused["unknown_source"]+refused["unknown_backend"] < 2 || refused["source_taken"] == 0 || len(a.entries) > 0 {
		t.Errorf("given %d, refused %v", given, refused)
	}
	for _, client := range own {
		b.send(client+" > 192.0.2.1:80 01", "conntrack")
	}
}

// TestRootSharedFlowsFullTable: flows that another balancer gives make unproven ones leave a full table, and never proven ones.
func TestRootSharedFlowsFullTable(t *testing.T) {
	t.Parallel()
	a := newSharing(t, attach.HookTCX, strings.Replace(shareSmallSpec, "LIMIT", "2000", 1))
	b := newSharing(t, attach.HookTCX, strings.Replace(shareSmallSpec, "LIMIT", "4", 1))
	b.connect("tcp 10.0.2.9:2040", "192.0.2.1:80")
	for i := range 4 {
		a.connect(fmt.Sprintf("tcp 10.0.1.%d:2000", i), "192.0.2.1:80")
		b.send(fmt.Sprintf("tcp 10.0.2.%d:2050 > 192.0.2.1:80 flags=syn", i), "")
	}
	_, refused := a.give(b, 1, always)
	if fill := b.d.tables.Fill(b.d.now()); fill.Proven != 3 || refused["table_full"] != 2 || len(refused) != 1 {
		t.Errorf("%+v, refused %v; want two given flows, and one slot for those that are not proven", fill, refused)
	}
	b.send("tcp 10.0.2.9:2040 > 192.0.2.1:80 flags=ack", "conntrack")
	b.send("tcp 10.0.3.1:2060 > 192.0.2.1:80 flags=syn", "maglev")
}

// BenchmarkRootFollow is one look at a table in which nothing has changed, and the first one, which yields all.
func BenchmarkRootFollow(b *testing.B) {
	for _, limit := range []int{1 << 18, 1 << 20} {
		for _, first := range []bool{false, true} {
			b.Run(fmt.Sprintf("flows=%d/first=%t", limit, first), func(b *testing.B) { benchmarkFollow(b, limit, first) })
		}
	}
}

func benchmarkFollow(b *testing.B, limit int, first bool) {
	w := newWorld(b)
	defer w.close()
	spec, _, err := config.Decode[lb.Spec]("spec.yaml", []byte(strings.Replace(shareSpec, "flows: 2000", fmt.Sprint("flows: ", limit), 1)))
	if err != nil {
		b.Fatal(err)
	}
	snapshot, err := lb.Compile(spec, nil, Caps(attach.HookTCX))
	if err != nil {
		b.Fatal(err)
	}
	d, err := Open(Config{Hook: attach.HookTCX, detached: true, manual: true})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if err := d.Apply(snapshot); err != nil {
		b.Fatal(err)
	}
	flows := make([]flow.Translated, limit)
	for i := range flows {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 5000)
		flows[i] = flow.Translated{Key: flow.NewKey(client, netip.MustParseAddrPort("192.0.2.2:80"), lb.UDP), Service: "nat", Backend: "a", Server: netip.MustParseAddrPort("10.1.0.1:80"), Left: -1}
	}
	answers := make([]flow.Answer, len(flows))
	d.EnterFlows(1, flows, answers)
	follow, n := d.FollowFlows(), 0
	count := func(changes []flow.Change) bool { n += len(changes); return true }
	follow(never, count)
	b.ReportMetric(float64(n), "flows")
	b.ResetTimer()
	for range b.N {
		if first {
			follow = d.FollowFlows()
		}
		follow(never, count)
	}
}
