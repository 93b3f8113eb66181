package steer_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
)

const natSpec = `maglev_size: 251
services:
- name: pool
  mode: nat
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}, {address: 192.0.2.1, protocol: tcp, port: 5684}]
  backends:
  - {name: a, address: 10.1.0.1}
  - {name: b, address: 10.1.0.2}
  - {name: c, address: 10.1.0.3}
`

func decode(t testing.TB, text string) lb.Spec {
	t.Helper()
	spec, _, err := config.Decode[lb.Spec]("spec", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func compile(t testing.TB, text string, caps ...lb.Caps) *lb.Snapshot {
	t.Helper()
	snapshot, err := lb.Compile(decode(t, text), nil, append(caps, lb.AllCaps())[0])
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func give(t testing.TB, e *steer.Engine, line string, now time.Duration) steer.Decision {
	t.Helper()
	d, err := packet.ParseText(line)
	if err != nil {
		t.Fatal(err)
	}
	var p packet.Packet
	if err := packet.Parse(d.Packets[0], &p); err != nil {
		return e.Malformed()
	}
	return e.Packet(&p, now)
}

func key(t testing.TB, n int) flow.Key {
	t.Helper()
	client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 5000)
	return flow.NewKey(client, netip.MustParseAddrPort("192.0.2.1:5684"), flow.ProtoUDP)
}

// Every reason that the engine itself can give is in the corpus.
func TestCorpusHasEveryReason(t *testing.T) {
	elsewhere := map[lb.Reason]bool{ // given by data paths, which see next hops, sizes, sockets and operators
		lb.ReasonNone: true, lb.ReasonNoNeighbour: true, lb.ReasonOutbound: true, lb.ReasonTooBig: true,
		lb.ReasonFragmentTableFull: true, // the eBPF table, under contention
		lb.ReasonSendFailed:        true, lb.ReasonFault: true, lb.ReasonNotDTLS: true,
		lb.ReasonTunnelRefused: true, lb.ReasonTunnelCongested: true, // the tunnel is taken off before the engine
	}
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for r := range lb.NumReasons {
		reason := lb.Reason(r)
		if !elsewhere[reason] && !strings.Contains(all.String(), fmt.Sprintf("want %s %s", reason.Action(), reason)) {
			t.Errorf("no case wants %s", reason)
		}
	}
	if len(names) < 80 {
		t.Errorf("%d cases", len(names))
	}
}

// The workers of one data path keep a service's new_flow_rate together, also one below their number.
func TestRateIsShared(t *testing.T) {
	const workers = 4
	for _, rate := range []int{1, 8, 1000} {
		snapshot := compile(t, strings.Replace(natSpec, "  mode: nat\n", fmt.Sprintf("  mode: l2dsr\n  new_flow_rate: %d\n", rate), 1))
		engines, opened, n := make([]*steer.Engine, workers), 0, 0
		for i := range engines {
			engines[i] = steer.New(snapshot, steer.Options{Workers: workers})
		}
		const seconds = 20
		for at := time.Duration(0); at < seconds*time.Second; at += 2 * time.Millisecond {
			for _, e := range engines {
				if n++; e.Datagram(key(t, n), nil, at).New {
					opened++
				}
			}
		}
		if low, high := rate*(seconds-1), rate*(seconds+1)+workers; opened < low || opened > high {
			t.Errorf("rate %d: %d new flows in %d s, want %d to %d", rate, opened, seconds, low, high)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{})
	var inputs [][]byte
	for _, line := range []string{
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 0102", "tcp 10.0.0.1:5000 > 192.0.2.1:5684",
		"udp 10.0.0.1:5000 > 192.0.2.9:5684", "ping 10.0.0.1 > 192.0.2.1 ident=3",
		"toobig 10.9.9.9 1300 about udp 192.0.2.1:5684 > 10.0.0.1:5000",
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=7 frag=1400",
	} {
		d, err := packet.ParseText(line)
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, d.Packets...)
	}
	buf := make([]byte, 0, 4096)
	var p packet.Packet
	work := make([]byte, 4096)
	now := time.Duration(0)
	pass := func() {
		now += time.Second
		for _, in := range inputs {
			n := copy(work, in)
			if packet.Parse(work[:n], &p) != nil {
				t.Fatal("malformed")
			}
			if d := e.Packet(&p, now); d.Action == lb.Forward {
				if (steer.Egress{}).Append(buf, &p, d) == nil {
					t.Fatal("not sent")
				}
			}
		}
	}
	pass()
	if n := testing.AllocsPerRun(200, pass); n != 0 {
		t.Errorf("%v allocations per %d packets", n, len(inputs))
	}
	k := key(t, 1)
	payload := []byte{1, 2, 3}
	if n := testing.AllocsPerRun(200, func() { e.Datagram(k, payload, now) }); n != 0 {
		t.Errorf("Datagram: %v allocations", n)
	}
}

// New flows do not allocate either once the tables have their working size.
func TestNewFlowsDoNotAllocate(t *testing.T) {
	e := steer.New(compile(t, natSpec+"  timeouts: {udp: 1s}\n"), steer.Options{})
	n, now := 0, time.Duration(0)
	pass := func() {
		n++
		now += time.Millisecond
		k := key(t, n)
		k.SrcPort = uint16(n)
		if d := e.Datagram(k, nil, now); d.Reason != lb.ReasonMaglev && d.Reason != lb.ReasonConntrack {
			t.Fatal(d.Reason)
		}
	}
	for range 50_000 {
		pass()
	}
	if a := testing.AllocsPerRun(5000, pass); a != 0 {
		t.Errorf("%v allocations per new flow", a)
	}
}

func TestCounters(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{})
	first := give(t, e, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100", 0)
	give(t, e, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100", 0)
	give(t, e, "udp 10.0.0.1:5000 > 192.0.2.9:5684", 0)
	give(t, e, "udp "+first.Destination.String()+" > 10.0.0.1:5000 payload=10", 0)
	give(t, e, "unreachable 10.66.0.1 about udp 10.0.0.1:5000 > "+first.Destination.String()+" payload=10", 0)
	e.Malformed()
	e.Count(lb.ReasonSendFailed, first.Service)
	for reason, want := range map[lb.Reason]uint64{
		lb.ReasonMaglev: 1, lb.ReasonConntrack: 1, lb.ReasonNotService: 1, lb.ReasonReply: 1, lb.ReasonICMPReply: 1, lb.ReasonMalformed: 1, lb.ReasonSendFailed: 1,
	} {
		if got := e.Reasons()[reason]; got != want {
			t.Errorf("%s: %d, want %d", reason, got, want)
		}
	}
	if got := e.ServiceReasons(0); got[lb.ReasonReply] != 1 || got[lb.ReasonNotService] != 0 || got[lb.ReasonSendFailed] != 1 {
		t.Errorf("%v", got)
	}
	total := uint64(0)
	for _, n := range e.Reasons() {
		total += n
	}
	if total != 7 {
		t.Errorf("%d exits counted, 7 taken", total)
	}
	for b, c := range e.Backends() {
		want := steer.BackendCounters{}
		if b == first.Backend {
			want = steer.BackendCounters{Packets: 2, Bytes: 256, ReplyPackets: 2, ReplyBytes: 38 + 66, NewFlows: 1}
		}
		if c != want {
			t.Errorf("%s: %+v, want %+v", b.Name, c, want)
		}
	}
	// Counters of what stays survive a new generation.
	e.SetSnapshot(compile(t, natSpec))
	if e.ServiceReasons(0)[lb.ReasonMaglev] != 1 || e.Reasons()[lb.ReasonMaglev] != 1 {
		t.Error("a reload cleared counters")
	}
	found := false
	for b, c := range e.Backends() {
		found = found || b.Name == first.Backend.Name && c.Packets == 2
	}
	if !found {
		t.Error("a reload cleared a backend's counters")
	}
}

func TestFlowsAndForget(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{})
	for i := range 10 {
		e.Datagram(key(t, i), nil, 0)
	}
	n := 0
	for f := range e.Flows(time.Second) {
		n++
		if f.Backend == nil || f.Left != 119*time.Second || f.State != "" {
			t.Errorf("%+v", f)
		}
	}
	if n != 10 || e.Tables().Flows != 10 {
		t.Error(n, e.Tables())
	}
	if !e.Forget(key(t, 3)) || e.Forget(key(t, 3)) || e.Tables().Flows != 9 {
		t.Error("Forget")
	}
	if d := e.Datagram(key(t, 3), nil, 0); d.Reason != lb.ReasonMaglev || !d.New {
		t.Error(d)
	}
	if n := e.Expire(time.Hour, -1); n != 10 || e.Tables().Flows != 0 {
		t.Error(n, e.Tables()) // ten flows, each with its reply
	}
}

func TestReassign(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{})
	k := key(t, 1)
	first := e.Datagram(k, nil, 0)
	other := first.Service.Backends[(first.Backend.Index+1)%3]
	if !e.Reassign(k, other, 0) {
		t.Fatal("refused")
	}
	if d := e.Datagram(k, nil, 0); d.Backend != other || d.Reason != lb.ReasonConntrack {
		t.Error(d)
	}
	// The old backend's late reply is not translated, the new one's is.
	if d := give(t, e, "udp "+first.Destination.String()+" > 10.0.0.1:5000", 0); d.Reason != lb.ReasonNotService {
		t.Error(d.Reason)
	}
	if d := give(t, e, "udp "+netip.AddrPortFrom(other.Address4, 5684).String()+" > 10.0.0.1:5000", 0); d.Reason != lb.ReasonReply {
		t.Error(d.Reason)
	}
	if e.Reassign(k, compile(t, natSpec).Services[0].Backends[0], 0) {
		t.Error("a backend of another snapshot was accepted")
	}
}

func TestRebalance(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{Proxy: true})
	before := map[int]*lb.Backend{}
	for i := range 300 {
		before[i] = e.Datagram(key(t, i), nil, 0).Backend
	}
	if n := e.Rebalance(); n != 300 {
		t.Error(n)
	}
	moved := 0
	for i := range 300 {
		d := e.Datagram(key(t, i), nil, 0)
		if d.Reason != lb.ReasonMaglev {
			t.Fatal(d.Reason)
		}
		if d.Backend != before[i] {
			moved++
		}
	}
	if moved < 140 || moved > 260 { // two thirds on average
		t.Errorf("%d of 300 moved", moved)
	}
	// However often: each choice is even, and has nothing to do with any other.
	const flows, rounds = 3000, 5
	var choices [rounds][flows]*lb.Backend
	for round := range rounds {
		shares := map[*lb.Backend]int{}
		for i := range flows {
			choices[round][i] = e.Datagram(key(t, i), nil, 0).Backend
			shares[choices[round][i]]++
		}
		for b, n := range shares {
			if n < flows/4 || n > flows*5/12 {
				t.Errorf("round %d: %s has %d of %d", round, b.Name, n, flows)
			}
		}
		for earlier := range round {
			same := 0
			for i := range flows {
				if choices[earlier][i] == choices[round][i] {
					same++
				}
			}
			if same < flows/4 || same > flows*5/12 {
				t.Errorf("rounds %d and %d agree on %d of %d flows", earlier, round, same, flows)
			}
		}
		e.Rebalance()
	}
}

// The last free port of a large pool is found too: each refused flow looks at other ones, so after as many as cover the
// pool nothing free is left.
func TestSNATPoolIsUsedUp(t *testing.T) {
	const pool = 3000
	e := steer.New(compile(t, `maglev_size: 251
limits: {flows: 65536}
services:
- name: pool
  mode: nat
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  snat: {addresses: [10.9.0.1], ports: 2000-4999}
  timeouts: {udp: 10s}
  backends: [{name: a, address: 10.1.0.1, port: 7000}]
`), steer.Options{})
	held, refused, tried := 0, 0, 0
	for ; held < pool && refused < 3*pool/64; tried++ {
		if d := e.Datagram(key(t, tried), nil, 0); d.Action == lb.Forward {
			give(t, e, "udp 10.1.0.1:7000 > "+d.Source.String()+" 01", 0)
			held, refused = held+1, 0
		} else {
			refused++
		}
	}
	if held != pool {
		t.Errorf("%d of %d ports were found; the last %d flows of %d were refused", held, pool, refused, tried)
	}
	if d := e.Datagram(key(t, tried), nil, 0); d.Reason != lb.ReasonSNATExhausted {
		t.Error("of a full pool:", d.Reason)
	}
}

// Behind a NAT with as many ports each connection keeps the one it has, so both are full at the same time: a flow refused
// here would hold a port there for minutes. A port that another has is looked for elsewhere.
func TestSNATKeepsPorts(t *testing.T) {
	e := steer.New(compile(t, `maglev_size: 251
services:
- name: pool
  mode: nat
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  snat: {addresses: [10.9.0.1], ports: 2000-4999}
  backends: [{name: a, address: 10.1.0.1, port: 7000}]
`), steer.Options{})
	from := func(client string, port int) flow.Key {
		return flow.NewKey(netip.AddrPortFrom(netip.MustParseAddr(client), uint16(port)), netip.MustParseAddrPort("192.0.2.1:5684"), flow.ProtoUDP)
	}
	for port := 2000; port <= 4999; port++ {
		if d := e.Datagram(from("192.0.2.200", port), nil, 0); d.Action != lb.Forward || d.Source != netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), uint16(port)) {
			t.Fatal(port, d.Reason, d.Source)
		}
		give(t, e, fmt.Sprintf("udp 10.1.0.1:7000 > 10.9.0.1:%d 01", port), 0)
	}
	if d := e.Datagram(from("192.0.2.201", 2000), nil, 0); d.Reason != lb.ReasonSNATExhausted {
		t.Error("of a full pool:", d.Reason, d.Source)
	}
	if d := e.Datagram(from("192.0.2.201", 2000), nil, time.Hour); d.Action != lb.Forward {
		t.Fatal(d.Reason)
	}
	if d := e.Datagram(from("192.0.2.202", 2000), nil, time.Hour); d.Action != lb.Forward || d.Source.Port() == 2000 {
		t.Error("another's port:", d.Reason, d.Source)
	}
	for _, port := range []int{1999, 5000} {
		if d := e.Datagram(from("192.0.2.203", port), nil, time.Hour); d.Action != lb.Forward || d.Source.Port() < 2000 || d.Source.Port() > 4999 {
			t.Error(port, d.Reason, d.Source)
		}
	}
}

// The SNAT pool gives each flow of one backend its own source, says when it is
// empty, and takes sources back.
func TestSNAT(t *testing.T) {
	e := steer.New(compile(t, `maglev_size: 251
services:
- name: pool
  mode: nat
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  snat: {addresses: [10.9.0.1], ports: 2000-2063}
  timeouts: {udp: 10s}
  backends: [{name: a, address: 10.1.0.1, port: 7000}]
`), steer.Options{})
	seen := map[netip.AddrPort]int{}
	for i := range 64 {
		d := e.Datagram(key(t, i), nil, 0)
		if d.Action != lb.Forward || d.Source.Addr() != netip.MustParseAddr("10.9.0.1") || d.Source.Port() < 2000 || d.Source.Port() > 2063 {
			t.Fatal(i, d.Reason, d.Source)
		}
		if other, ok := seen[d.Source]; ok {
			t.Fatalf("flows %d and %d share %s", i, other, d.Source)
		}
		seen[d.Source] = i
	}
	for source, i := range seen {
		d := give(t, e, "udp 10.1.0.1:7000 > "+source.String()+" 01", time.Second)
		if d.Reason != lb.ReasonReply || d.Destination != key(t, i).Source() || d.Source != key(t, i).Destination() {
			t.Fatal(i, d.Reason, d.Destination, d.Source)
		}
	}
	if d := e.Datagram(key(t, 64), nil, time.Second); d.Reason != lb.ReasonSNATExhausted {
		t.Error(d.Reason)
	}
	if d := e.Datagram(key(t, 64), nil, time.Hour); d.Action != lb.Forward {
		t.Error("an expired source was not given again:", d.Reason)
	}
}

func TestProxyKeepsNoReplies(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{Proxy: true})
	d := e.Datagram(key(t, 1), nil, 0)
	if d.Action != lb.Forward || !d.Destination.IsValid() {
		t.Fatal(d)
	}
	if r := give(t, e, "udp "+d.Destination.String()+" > 10.0.0.1:5000", 0); r.Reason != lb.ReasonNotService {
		t.Error(r.Reason)
	}
	// Its sockets see the replies, which prove and renew a flow.
	e.Renew(key(t, 2), 0) // unknown
	e.Renew(key(t, 1), 100*time.Second)
	if e.Owner(key(t, 1), 219*time.Second) != d.Backend || e.Owner(key(t, 1), 220*time.Second) != nil || e.Tables().ProvenFlows != 1 {
		t.Error("a renewed flow lives for two minutes more, and is proven")
	}
	e.SetSnapshot(compile(t, strings.Replace(natSpec, "name: "+d.Backend.Name+",", "name: other,", 1)))
	e.Renew(key(t, 1), 100*time.Second) // its backend is gone
	// A proxy may translate between families.
	e = steer.New(compile(t, strings.Replace(natSpec, "{address: 192.0.2.1, protocol: udp", "{address: \"2001:db8::f\", protocol: udp", 1)), steer.Options{Proxy: true})
	k := flow.NewKey(netip.MustParseAddrPort("[2001:db8::1]:5000"), netip.MustParseAddrPort("[2001:db8::f]:5684"), flow.ProtoUDP)
	if d := e.Datagram(k, nil, 0); d.Action != lb.Forward || d.Destination != netip.AddrPortFrom(d.Backend.Address4, 5684) {
		t.Errorf("from IPv6 to IPv4: %s to %s", d.Reason, d.Destination)
	}
	if d := e.Datagram(key(t, 1), nil, 0); d.Reason != lb.ReasonNotService || e.Reasons()[lb.ReasonNotService] != 1 {
		t.Errorf("of no service: %s", d.Reason)
	}
}

func TestMaxFlowsIsTheWorkersShare(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{MaxFlows: 5})
	for i := range 5 {
		e.Datagram(key(t, i), nil, 0)
	}
	if d := e.Datagram(key(t, 9), nil, 0); d.Reason != lb.ReasonMaglev || e.Tables().Flows != 5 || e.Tables().FlowsEvicted != 1 {
		t.Error(d.Reason, e.Tables())
	}
}

// Any bytes, under any of five specs, with a snapshot change in between: no
// panic, one counted reason per packet, bounded tables.
func FuzzEngine(f *testing.F) {
	for _, line := range []string{
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 19fefd0001000000000007020a0b0c0d0e0004aabbccdd",
		"tcp 10.0.0.1:5000 > 192.0.2.1:5684 flags=syn", "ping 10.0.0.1 > 192.0.2.1",
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100 id=7 frag=40 piece=1",
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100 id=7 frag=40 piece=2",
		"toobig 10.9.9.9 1300 about udp 192.0.2.1:5684 > 10.0.0.1:5000",
		"udp 10.1.0.1:5684 > 10.0.0.1:5000",
		// What flow rules look at.
		"udp 10.0.0.1:9899 > 192.0.2.1:9899 0fa013890000000100000000",
		"udp [2001:db8::c]:9899 > [2001:db8:f::1]:9899 0fa013890000000100000000",
		"toobig 10.9.9.9 1300 about udp 192.0.2.1:9899 > 10.0.0.1:9899 13890fa00000000100000000",
		"unreachable 10.9.9.9 quote=28 about udp 192.0.2.1:9899 > 10.0.0.1:9899 13890fa00000000100000000",
		"sctp [2001:db8::c]:4000 > [2001:db8:f::1]:5001", "tcp [2001:db8::c]:5000 > [2001:db8:f::1]:80 flags=syn",
		"proto47 10.0.0.1 > 192.0.2.1 0000", "pong [2001:db8::c] > [2001:db8:f::1] ident=7",
		"udp [2001:db8::2]:5000 > [2001:db8:f::1]:5684 payload=100 id=7 frag=40 piece=2",
		"udp [2001:db8::2]:5000 > [2001:db8:f::1]:5684 payload=100 id=7 frag=40 piece=1 ttl=3",
	} {
		d, err := packet.ParseText(line)
		if err != nil {
			f.Fatal(err)
		}
		for choice := range uint8(5) {
			f.Add(d.Packets[0], d.Packets[0], choice)
		}
	}
	var specs []*lb.Snapshot
	for _, text := range []string{
		natSpec,
		strings.ReplaceAll(natSpec, "mode: nat", "mode: l3dsr"),
		"maglev_size: 251\nlimits: {flows: 1, fragments: 1}\nservices:\n- name: pool\n  vips: [{address: 0.0.0.0/0, protocol: udp, port: any}]\n  cid: {protocols: [dtls12, quic], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}\n  backends: [{name: a, address: 10.1.0.1, nodes: [2]}]\n",
		rulesSpec, nfqlbSpec,
	} {
		specs = append(specs, compile(f, text))
	}
	egress := steer.Egress{Source4: netip.MustParseAddr("10.0.0.9"), Source6: netip.MustParseAddr("::9"), Router: true}
	f.Fuzz(func(t *testing.T, one, two []byte, choice uint8) {
		e := steer.New(specs[int(choice)%len(specs)], steer.Options{Router: choice&64 != 0})
		n := uint64(0)
		for i, b := range [][]byte{one, two, one, two, two, one} {
			if i == 3 {
				e.SetSnapshot(specs[int(choice/3)%len(specs)])
			}
			b = append([]byte(nil), b...)
			var p packet.Packet
			n++
			if packet.Parse(b, &p) != nil {
				e.Malformed()
				continue
			}
			d := e.Packet(&p, time.Duration(i)*time.Second)
			if d.Reason == lb.ReasonNone || d.Action != d.Reason.Action() || d.Action == lb.Forward && d.Backend == nil && d.Member == nil {
				t.Fatalf("%+v", d)
			}
			_ = e.Why(&p, d)
			if d.Action == lb.Forward {
				_ = egress.Append(nil, &p, d)
			}
		}
		sum := uint64(0)
		for _, c := range e.Reasons() {
			sum += c
		}
		if sum != n {
			t.Fatalf("%d packets, %d reasons", n, sum)
		}
	})
}

func BenchmarkPacket(b *testing.B) {
	for _, c := range []struct{ name, spec, line string }{
		{"conntrack-nat", natSpec, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100"},
		{"conntrack-l2dsr", strings.ReplaceAll(natSpec, "mode: nat", "mode: l2dsr"), "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=100"},
		{"cid-l2dsr", strings.ReplaceAll(strings.ReplaceAll(natSpec, "mode: nat", "mode: l2dsr\n  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}"),
			"10.1.0.2}", "10.1.0.2, nodes: [2]}"), "udp 10.0.0.1:5000 > 192.0.2.1:5684 19fefd0001000000000007020a0b0c0d0e0004aabbccdd"},
	} {
		b.Run(c.name, func(b *testing.B) {
			spec := strings.Replace(c.spec, ", {address: 192.0.2.1, protocol: tcp, port: 5684}", "", 1)
			e := steer.New(compile(b, spec), steer.Options{})
			d, _ := packet.ParseText(c.line)
			var p packet.Packet
			now := time.Duration(0)
			b.ReportAllocs()
			for b.Loop() {
				now += time.Microsecond
				_ = packet.Parse(d.Packets[0], &p)
				e.Packet(&p, now)
			}
		})
	}
}

// Moving flows about leaves no entry of theirs behind that would fill a table.
func TestReassignLeavesNothingBehind(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{MaxFlows: 4})
	for i := range 4 {
		e.Datagram(key(t, i), nil, 0)
	}
	for round := range 30 {
		for i := range 4 {
			b := e.Snapshot().Services[0].Backends[(round+i)%3]
			if !e.Reassign(key(t, i), b, 0) {
				t.Fatalf("round %d: no room for flow %d", round, i)
			}
		}
	}
	if n := e.Expire(time.Hour, -1); n != 4 { // a reply that is left behind would count
		t.Errorf("%d entries for four flows, each with its reply", n)
	}
}
