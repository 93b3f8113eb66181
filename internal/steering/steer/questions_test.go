package steer_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer"
)

const cidSpec = `maglev_size: 251
services:
- name: pool
  mode: l2dsr
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
  backends: [{name: a, address: 10.1.0.1, nodes: [1]}, {name: b, address: 10.1.0.2, nodes: [2]}]
- name: plain
  mode: l2dsr
  vips: [{address: 192.0.2.2, protocol: udp, port: 5684}, {address: 192.0.2.1, protocol: tcp, port: 5684}]
  backends: [{name: a, address: 10.1.0.1}]
`

// Whether a datagram's connection id names an owner that is alive.
func TestNamesOwner(t *testing.T) {
	record := func(owner string) []byte {
		b, err := hex.DecodeString("19fefd00010000000000" + "07" + owner + "0a0b0c0d0e0004aabbccdd")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	at := func(vip string, proto uint8) flow.Key {
		return flow.NewKey(netip.MustParseAddrPort("10.0.0.1:5000"), netip.MustParseAddrPort(vip), proto)
	}
	snapshot := compile(t, cidSpec)
	down := *snapshot.Services[1]
	if down.Name != "pool" {
		t.Fatal(down.Name)
	}
	owner := "02"
	named := func(s *lb.Snapshot, k flow.Key, payload []byte) bool {
		return steer.New(s, steer.Options{}).NamesOwner(k, payload)
	}
	overridden := func(target lb.Target, o lb.Override) *lb.Snapshot {
		s := snapshotWith(t, cidSpec, (*lb.Overrides)(nil).With(target, lb.FromOperator, o))
		return s
	}
	for what, c := range map[string]struct{ got, want bool }{
		"a living owner":   {named(snapshot, at("192.0.2.1:5684", flow.ProtoUDP), record(owner)), true},
		"nobody's id":      {named(snapshot, at("192.0.2.1:5684", flow.ProtoUDP), record("09")), false},
		"no CID":           {named(snapshot, at("192.0.2.1:5684", flow.ProtoUDP), nil), false},
		"no service":       {named(snapshot, at("192.0.2.9:5684", flow.ProtoUDP), record(owner)), false},
		"service without":  {named(snapshot, at("192.0.2.2:5684", flow.ProtoUDP), record(owner)), false},
		"another protocol": {named(snapshot, at("192.0.2.1:5684", flow.ProtoTCP), record(owner)), false},
		"owner drains":     {named(overridden(lb.Target{Service: "pool", Backend: "b"}, lb.OverrideDrain), at("192.0.2.1:5684", flow.ProtoUDP), record(owner)), true},
		"owner is down":    {named(overridden(lb.Target{Service: "pool", Backend: "b"}, lb.OverrideDown), at("192.0.2.1:5684", flow.ProtoUDP), record(owner)), false},
		"service is down":  {named(overridden(lb.Target{Service: "pool"}, lb.OverrideDown), at("192.0.2.1:5684", flow.ProtoUDP), record(owner)), false},
	} {
		if c.got != c.want {
			t.Errorf("%s: %t", what, c.got)
		}
	}
}

func snapshotWith(t *testing.T, text string, overrides *lb.Overrides) *lb.Snapshot {
	t.Helper()
	s, err := lb.Compile(decode(t, text), overrides, lb.AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An error about a flow of another worker goes to that worker's backend, if it is one of the snapshot in force, is up, and the
// mode needs no entry to translate. What this worker knows itself goes first.
func TestErrorsAboutFlowsOfOtherWorkers(t *testing.T) {
	const line = "unreachable 10.9.9.9 about udp 192.0.2.1:5684 > 10.0.0.1:5000 01"
	about := func(e *steer.Engine, owner *lb.Backend) steer.Decision {
		d, err := packet.ParseText(line)
		if err != nil {
			t.Fatal(err)
		}
		var p packet.Packet
		if err := packet.Parse(d.Packets[0], &p); err != nil {
			t.Fatal(err)
		}
		return e.ErrorAbout(&p, owner, 0)
	}
	for _, mode := range []string{"l2dsr", "nat"} {
		text := strings.Replace(natSpec, "mode: nat", "mode: "+mode, 1)
		snapshot := compile(t, text)
		e := steer.New(snapshot, steer.Options{})
		guess := about(e, nil)
		if (guess.Reason == lb.ReasonICMPError) != (mode != "nat") || mode == "nat" && guess.Reason != lb.ReasonICMPUnknown {
			t.Errorf("mode %s, no one knows the flow: %s", mode, guess.Reason)
		}
		for _, b := range snapshot.Services[0].Backends {
			if d := about(e, b); mode == "nat" && d.Reason != lb.ReasonICMPUnknown || mode != "nat" && d.Backend != b {
				t.Errorf("mode %s, another worker has %s: %s to %v", mode, b.Name, d.Reason, d.Backend)
			}
			if d := about(e, nil); d.Backend != guess.Backend {
				t.Error("what was lent for one error is used for the next")
			}
		}
		// Of another snapshot, or down: no owner.
		for _, b := range compile(t, text).Services[0].Backends {
			if d := about(e, b); d.Backend != guess.Backend {
				t.Errorf("mode %s: the backend of another snapshot is used", mode)
			}
		}
		two := compile(t, text+"- {name: zone, mode: l2dsr, vips: [{address: 192.0.2.99, protocol: udp, port: 1}], backends: [{name: z, address: 10.1.0.9}]}\n")
		if d := about(e, two.Services[1].Backends[0]); d.Backend != guess.Backend {
			t.Errorf("mode %s: the backend of a service that is not there is used", mode)
		}
		downed := snapshotWith(t, text, (*lb.Overrides)(nil).With(lb.Target{Service: "pool", Backend: "a"}, lb.FromOperator, lb.OverrideDown))
		e = steer.New(downed, steer.Options{})
		if d := about(e, downed.Services[0].Backend("a")); d.Backend != nil && d.Backend.Name == "a" {
			t.Errorf("mode %s: a backend that is down gets an error", mode)
		}
		// Its own entry goes first.
		e = steer.New(snapshot, steer.Options{})
		own := give(t, e, "udp 10.0.0.1:5000 > 192.0.2.1:5684", 0).Backend
		if d := about(e, snapshot.Services[0].Backends[(own.Index+1)%3]); d.Backend != own {
			t.Errorf("mode %s: %s, and this worker has the flow at %s", mode, d.Backend.Name, own.Name)
		}
	}
}

// Who has a flow, and lists that end when yield returns false.
func TestOwnersAndLists(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{})
	k := key(t, 1)
	if e.Owner(k, 0) != nil {
		t.Error("a flow that never was has an owner")
	}
	first := e.Datagram(k, nil, 0)
	if e.Owner(k, 0) != first.Backend || e.Owner(k, time.Hour) != nil {
		t.Errorf("owner %v, later %v", e.Owner(k, 0), e.Owner(k, time.Hour))
	}
	drained := snapshotWith(t, natSpec, (*lb.Overrides)(nil).With(lb.Target{Service: "pool", Backend: first.Backend.Name}, lb.FromOperator, lb.OverrideDrain))
	e.SetSnapshot(drained)
	if b := e.Owner(k, 0); b == nil || b.Name != first.Backend.Name {
		t.Errorf("drained: owner %v", b)
	}
	e.SetSnapshot(snapshotWith(t, natSpec, (*lb.Overrides)(nil).With(lb.Target{Service: "pool", Backend: first.Backend.Name}, lb.FromOperator, lb.OverrideDown)))
	if e.Owner(k, 0) != nil {
		t.Error("an owner that is down")
	}
	e.SetSnapshot(compile(t, strings.Replace(natSpec, "name: "+first.Backend.Name+",", "name: other,", 1)))
	if e.Owner(k, 0) != nil {
		t.Error("an owner that is gone")
	}
	for range e.Flows(0) {
		t.Error("a flow whose backend is gone is listed")
	}
	e.SetSnapshot(compile(t, natSpec))
	n := 0
	for range e.Backends() {
		n++
		break
	}
	marked := steer.New(compile(t, rulesSpec), steer.Options{})
	for range marked.Rules() {
		n++
		break
	}
	e.Datagram(k, nil, 0)
	e.Datagram(key(t, 2), nil, 0)
	for range e.Flows(0) {
		n++
		break
	}
	if n != 3 || e.NumBackends() != 3 {
		t.Errorf("%d of 3 lists gave one thing; %d backends", n, e.NumBackends())
	}
	// A decision of a snapshot that is gone counts for no service of this one.
	e.Count(lb.ReasonSendFailed, first.Service)
	if e.ServiceReasons(0)[lb.ReasonSendFailed] != 0 || e.Reasons()[lb.ReasonSendFailed] != 1 {
		t.Error("counted for another generation")
	}
	// Fragments, and what was handed to the tier, expire too.
	give(t, e, "udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=9 frag=1400 piece=2", 0)
	if e.Tables().Fragments.Held != 1 {
		t.Fatal("no fragment is held")
	}
	if e.Expire(time.Hour, -1); e.Tables().Fragments.Entries != 0 {
		t.Error("fragments stay")
	}
}

// A flow rule takes every kind of ICMPv6 but what keeps the link itself alive, and of IPv4 everything.
func TestLinkTrafficStays(t *testing.T) {
	const text = `maglev_size: 251
no_service_mark: %d
services: [{name: all, mode: mark, flows: [{name: all, %s}], backends: [{name: a, mark: 101}]}]
`
	all := steer.New(compile(t, fmt.Sprintf(text, 0, "priority: 1")), steer.Options{})
	other := steer.New(compile(t, fmt.Sprintf(text, 8, "protocols: [tcp]")), steer.Options{})
	link := func(kind int) bool { return kind >= 130 && kind <= 137 || kind == 143 }
	for kind := 5; kind < 256; kind++ {
		for _, version := range []int{4, 6} {
			raw := []byte{byte(kind), 0, 0, 0, 0, 0, 0, 0}
			head := make([]byte, 40)
			head[0], head[5], head[6], head[7], head[8], head[24] = 0x60, 8, 58, 255, 0x20, 0x20
			if version == 4 {
				head = make([]byte, 20)
				head[0], head[3], head[8], head[9], head[12], head[16] = 0x45, 28, 64, 58, 10, 192
				var sum uint32
				for i := 0; i < 20; i += 2 {
					sum += uint32(binary.BigEndian.Uint16(head[i:]))
				}
				binary.BigEndian.PutUint16(head[10:], ^uint16(sum+sum>>16))
			}
			var p packet.Packet
			if err := packet.Parse(append(head, raw...), &p); err != nil {
				t.Fatalf("ICMPv6 type %d: %v", kind, err)
			}
			stays := version == 6 && link(kind)
			d := all.Packet(&p, 0)
			if taken := d.Action == lb.Forward; taken == stays {
				t.Errorf("version %d, type %d: %s", version, kind, d.Reason)
			}
			if d := other.Packet(&p, 0); (d.Mark == 0) != stays {
				t.Errorf("version %d, type %d, of no service: mark %d", version, kind, d.Mark)
			}
		}
	}
}

// The bound of entries for new flows in the modes that need none: the table's size once per UDP timeout, when it is more than
// three quarters full; each new flow is forwarded all the same.
func TestEntriesOfAFullTable(t *testing.T) {
	e := steer.New(compile(t, "limits: {flows: 1200}\n"+strings.Replace(natSpec, "mode: nat", "mode: l2dsr", 1)), steer.Options{})
	entered := func(from, to int, now time.Duration) (n int) {
		for i := from; i < to; i++ {
			d := e.Datagram(key(t, i), nil, now)
			if d.Action != lb.Forward {
				t.Fatal(d.Reason)
			}
			if d.New {
				n++
			}
		}
		return n
	}
	if n := entered(0, 901, 0); n != 901 {
		t.Errorf("%d of 901 have an entry", n)
	}
	if n := entered(901, 1101, time.Second); n != 10 { // 1200 flows in 120 s; a burst of a second
		t.Errorf("%d have an entry in a table that is three quarters full, want 10", n)
	}
	if n := entered(1101, 1201, 2*time.Second); n != 10 {
		t.Errorf("%d have an entry a second later, want 10", n)
	}
}

// A rate of the service's own bounds its entries, however full the table is.
func TestRateGoesBeforeTheTable(t *testing.T) {
	e := steer.New(compile(t, "limits: {flows: 1200}\n"+strings.Replace(natSpec, "mode: nat", "mode: l2dsr\n  new_flow_rate: 1100", 1)), steer.Options{})
	n := 0
	for i := range 1200 {
		if e.Datagram(key(t, i), nil, time.Second).New {
			n++
		}
	}
	if n != 1100 {
		t.Errorf("%d flows have an entry, want those of a second", n)
	}
}

// One client that opens flow after flow evicts its own.
func TestOneSourceEvictsItsOwn(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{MaxFlows: 64})
	for i := range 8 {
		e.Datagram(key(t, i), nil, 0)
	}
	for port := range 1000 {
		e.Datagram(flow.NewKey(netip.AddrPortFrom(netip.MustParseAddr("10.7.7.7"), uint16(port+1)), netip.MustParseAddrPort("192.0.2.1:5684"), flow.ProtoUDP), nil, 0)
	}
	for i := range 8 {
		if e.Owner(key(t, i), 0) == nil {
			t.Errorf("flow %d was evicted", i)
		}
	}
}

// An error about a flow without entry goes by the rule that compares the ports of the client's packets.
func TestErrorsGoByComparedPorts(t *testing.T) {
	e := steer.New(compile(t, `maglev_size: 251
services:
- {name: source, mode: mark, conntrack: false, flows: [{name: f, priority: 3, match: ["udp[0:2] = 0x1388"]}], backends: [{name: a, mark: 101}]}
- {name: destination, mode: mark, conntrack: false, flows: [{name: f, priority: 2, match: ["udp[2:2] = 0x1634"]}], backends: [{name: a, mark: 102}]}
- {name: rest, mode: mark, conntrack: false, flows: [{name: f}], backends: [{name: a, mark: 103}]}
`), steer.Options{})
	for ports, want := range map[[2]int]uint32{{0x1388, 0x1634}: 101, {0x1388, 1}: 101, {0x8813, 0x1634}: 102, {0x1389, 0x1634}: 102, {0x0088, 0x0034}: 103, {0x8813, 0x3416}: 103, {1, 1}: 103} {
		packet := fmt.Sprintf("udp 10.0.0.1:%d > 192.0.2.1:%d 01", ports[0], ports[1])
		about := fmt.Sprintf("unreachable 10.9.9.9 about udp 192.0.2.1:%d > 10.0.0.1:%d 01", ports[1], ports[0])
		if d := give(t, e, packet, 0); d.Mark != want {
			t.Errorf("%s: mark %d, want %d", packet, d.Mark, want)
		}
		if d := give(t, e, about, 0); d.Mark != want || d.Reason != lb.ReasonICMPError {
			t.Errorf("%s: %s, mark %d, want %d", about, d.Reason, d.Mark, want)
		}
	}
}

// A router drops what it would forward with a spent hop limit, and nothing else.
func TestSpentHopLimit(t *testing.T) {
	e := steer.New(compile(t, natSpec), steer.Options{Router: true})
	for line, want := range map[string]lb.Reason{
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 ttl=1": lb.ReasonTTLExpired, "udp 10.0.0.1:5001 > 192.0.2.1:5684 ttl=2": lb.ReasonMaglev, "udp 10.0.0.1:5000 > 192.0.2.9:5684 ttl=1": lb.ReasonNotService,
	} {
		if d := give(t, e, line, 0); d.Reason != want || d.Action != want.Action() {
			t.Errorf("%s: %s", line, d.Reason)
		}
	}
}

// A table of one entry, in mode nat: a proven flow makes room for one that a connection id steers to the same service.
func TestDisplacedFlows(t *testing.T) {
	record, err := hex.DecodeString("19fefd0001000000000007020a0b0c0d0e0004aabbccdd")
	if err != nil {
		t.Fatal(err)
	}
	for other, want := range map[string]lb.Reason{"192.0.2.1:5684": lb.ReasonCID, "192.0.2.2:5684": lb.ReasonFlowTableFull} {
		e := steer.New(compile(t, strings.ReplaceAll(strings.Replace(cidSpec, ", {address: 192.0.2.1, protocol: tcp, port: 5684}", "", 1), "mode: l2dsr", "mode: nat")), steer.Options{MaxFlows: 1})
		first := flow.NewKey(netip.MustParseAddrPort("10.0.0.1:5000"), netip.MustParseAddrPort(other), flow.ProtoUDP)
		d := e.Datagram(first, nil, 0)
		if give(t, e, fmt.Sprintf("udp %s > 10.0.0.1:5000 01", d.Destination), 0); e.Tables().ProvenFlows != 1 {
			t.Fatal("the first flow is not proven")
		}
		second := flow.NewKey(netip.MustParseAddrPort("10.0.0.2:5000"), netip.MustParseAddrPort("192.0.2.1:5684"), flow.ProtoUDP)
		if d := e.Datagram(second, record, 0); d.Reason != want || (e.Owner(first, 0) == nil) != (want == lb.ReasonCID) || e.Tables().FlowsDisplaced != map[lb.Reason]uint64{lb.ReasonCID: 1}[want] {
			t.Errorf("with a flow to %s: %s, %d displaced", other, d.Reason, e.Tables().FlowsDisplaced)
		}
		if d := e.Datagram(second.Reverse(), nil, 0); d.Reason != lb.ReasonNotService {
			t.Errorf("of no service: %s", d.Reason)
		}
	}
}

// A service without conntrack has no entries, also for what connection ids steer; and backends of other snapshots get nothing.
func TestWithoutConntrack(t *testing.T) {
	e := steer.New(compile(t, strings.Replace(cidSpec, "mode: l2dsr", "mode: l2dsr\n  conntrack: false", 1)), steer.Options{})
	for owner, want := range map[byte]string{1: "a", 2: "b"} {
		record, _ := hex.DecodeString("19fefd00010000000000070" + string('0'+owner) + "0a0b0c0d0e0004aabbccdd")
		for i := range 20 {
			if d := e.Datagram(key(t, i), record, 0); d.Reason != lb.ReasonCID || d.Backend.Name != want || d.New {
				t.Errorf("flow %d with owner %d: %s to %v", i, owner, d.Reason, d.Backend)
			}
		}
	}
	if n := e.Tables().Flows; n != 0 {
		t.Errorf("%d entries", n)
	}
	larger := compile(t, natSpec+"- {name: zone, mode: nat, vips: [{address: 192.0.2.99, protocol: udp, port: 1}], backends: [{name: z, address: 10.1.0.9}]}\n")
	e = steer.New(compile(t, natSpec), steer.Options{})
	if e.Reassign(key(t, 1), larger.Services[1].Backends[0], 0) || e.Reassign(key(t, 1), larger.Services[0].Backends[0], 0) {
		t.Error("a flow goes to a backend of another snapshot")
	}
	e.Count(lb.ReasonSendFailed, larger.Services[1]) // of a service that is not there
	// An error about a flow whose backend is gone goes where its rule leads now.
	e = steer.New(compile(t, rulesSpec), steer.Options{})
	give(t, e, "sctp 10.0.0.1:4000 > 192.0.2.1:5001", 0)
	e.SetSnapshot(compile(t, strings.Replace(rulesSpec, "{name: a, mark: 111}, {name: b, mark: 112}", "{name: c, mark: 113}", 1)))
	if d := give(t, e, "unreachable 10.9.9.9 about sctp 192.0.2.1:5001 > 10.0.0.1:4000", 0); d.Reason != lb.ReasonICMPError || d.Mark != 113 {
		t.Errorf("%s with mark %d", d.Reason, d.Mark)
	}
}
