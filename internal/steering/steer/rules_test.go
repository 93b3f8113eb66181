package steer_test

import (
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

// rulesSpec has all that mode mark knows: rules of each kind, a tier, marks for what nothing takes.
const rulesSpec = `maglev_size: 251
no_service_mark: 2
promiscuous_ping: true
tier: {self: one, members: [{name: one, mark: 901}, {name: two, mark: 902}]}
services:
- name: syn
  mode: mark
  flows:
  - {name: syn, priority: 9, protocols: [tcp], destinations: ["192.0.2.0/24", "2001:db8:f::/48"], match: ["tcp[13:1] & 2 = 2"]}
  backends: [{name: a, mark: 101}, {name: b, mark: 102}]
- name: sctp
  mode: mark
  sctp_hash: ports
  flows:
  - {name: sctp, protocols: [sctp], udp_encap: 9899}
  backends: [{name: a, mark: 111}, {name: b, mark: 112}]
- name: nobody
  mode: mark
  no_backend_mark: 1
  flows:
  - {name: nobody, priority: 20, sources: ["10.6.0.0/16"]}
- name: rest
  mode: mark
  conntrack: false
  flows:
  - {name: rest, priority: -1, destinations: ["192.0.2.0/24", "2001:db8:f::/48"]}
  backends: [{name: a, mark: 121}, {name: b, mark: 122}]
`

// nfqlbSpec is a balancer in a tier with nfqlb.
const nfqlbSpec = `hash: nfqlb
maglev_size: 1000
tier: {self: one, maglev_size: 401, members: [{name: one, mark: 201}, {name: two, mark: 202}]}
services:
- name: pool
  mode: mark
  flows: [{name: all}]
  backends: [{name: a, mark: 101}, {name: b, mark: 102}, {name: c, mark: 103}, {name: d, mark: 104}]
`

func TestRulesAllocateNothing(t *testing.T) {
	for _, spec := range []string{rulesSpec, nfqlbSpec} {
		e := steer.New(compile(t, spec), steer.Options{})
		var inputs [][]byte
		for _, line := range []string{
			"tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn", "tcp [2001:db8::c]:5000 > [2001:db8:f::1]:80",
			"sctp 10.0.0.1:4000 > 192.0.2.1:5001", "udp 10.0.0.1:9899 > 192.0.2.1:9899 0fa013890000000100000000",
			"toobig 10.9.9.9 1300 about udp 192.0.2.1:9899 > 10.0.0.1:9899 13890fa00000000100000000",
			"toobig 10.9.9.9 1300 about tcp 192.0.2.1:80 > 10.0.0.1:5000",
			"udp 10.6.0.1:5000 > 192.0.2.1:7", "udp 10.0.0.1:5000 > 198.51.100.1:7", "proto47 10.0.0.1 > 192.0.2.1 00",
			"ping 10.0.0.1 > 192.0.2.1 ident=3", "pong 10.0.0.1 > 192.0.2.1 ident=3",
			"udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=7 frag=1400",
			"udp 10.0.0.2:5000 > 192.0.2.1:5684 payload=3000 id=7 frag=1400",
			"udp 10.0.0.3:5000 > 192.0.2.1:5684 payload=3000 id=7 frag=1400",
			"udp [2001:db8::2]:5000 > [2001:db8:f::1]:5684 payload=3000 id=7 frag=1400",
		} {
			d, err := packet.ParseText(line)
			if err != nil {
				t.Fatal(err)
			}
			inputs = append(inputs, d.Packets...)
		}
		var p packet.Packet
		now := time.Duration(0)
		pass := func() {
			now += time.Millisecond
			for _, in := range inputs {
				if packet.Parse(in, &p) != nil {
					t.Fatal("malformed")
				}
				e.Packet(&p, now)
			}
		}
		pass()
		if n := testing.AllocsPerRun(200, pass); n != 0 {
			t.Errorf("%v allocations per %d packets", n, len(inputs))
		}
		if e.Tables().Tier.Sent == 0 {
			t.Error("no fragment went to the other member: the test does not reach that path")
		}
	}
}

// A rule's counter is its own, also when rules come, go and change places.
func TestRuleCountersOutliveReloads(t *testing.T) {
	e := steer.New(compile(t, rulesSpec), steer.Options{})
	give(t, e, "tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn", 0)
	give(t, e, "tcp 10.0.0.1:5000 > 192.0.2.1:80", 0)
	give(t, e, "udp 10.6.0.1:5000 > 192.0.2.1:80", 0)
	counts := func() string {
		var all []string
		for rule, n := range e.Rules() {
			all = append(all, fmt.Sprintf("%s=%d", rule.Name, n))
		}
		return strings.Join(all, " ")
	}
	if got := counts(); got != "nobody=1 syn=1 sctp=0 rest=1" {
		t.Error(got)
	}
	e.SetSnapshot(compile(t, strings.Replace(rulesSpec, "priority: -1", "priority: 15", 1)))
	give(t, e, "udp 10.0.0.1:5000 > 192.0.2.1:80", 0)
	if got := counts(); got != "nobody=1 rest=2 syn=1 sctp=0" {
		t.Error(got)
	}
	e.SetSnapshot(compile(t, natSpec))
	if got := counts(); got != "" {
		t.Error(got)
	}
	e.SetSnapshot(compile(t, rulesSpec))
	if got := counts(); got != "nobody=0 syn=0 sctp=0 rest=0" {
		t.Error(got)
	}
}

// The tier's counters, and what happens when its memory is full: fragments go on, unguarded.
func TestTierCounters(t *testing.T) {
	e := steer.New(compile(t, "limits: {fragments: 1}\n"+rulesSpec), steer.Options{})
	away := ""
	for i := 1; away == ""; i++ { // a source whose fragments belong to the other member
		line := fmt.Sprintf("udp 10.0.0.%d:5000 > 192.0.2.1:5684 payload=3000 frag=1400 piece=1", i)
		if give(t, e, line+" id=1", 0).Reason == lb.ReasonTier {
			away = line
		}
	}
	d := give(t, e, away+" id=2", 0)
	if d.Reason != lb.ReasonTier || d.Mark != 902 || d.Member.Name != "two" || d.Service != nil || d.Backend != nil {
		t.Errorf("%+v", d)
	}
	if d := give(t, e, away+" id=1 ttl=9", 0); d.Reason == lb.ReasonTier {
		t.Error("a fragment that came back was sent on")
	}
	if d := give(t, e, away+" id=2 ttl=9", 0); d.Reason != lb.ReasonTier {
		t.Errorf("not remembered, so not known to be back: %+v", d)
	}
	if got := e.Tables().Tier; got != (steer.TierCounters{Sent: 3, Returned: 1, Unguarded: 2}) {
		t.Errorf("%+v", got)
	}
}

// Ten balancers whose tables all differ hand a fragment on no further than to the first that had it before.
func TestTierCirclesEnd(t *testing.T) {
	const members = 10
	var engines []*steer.Engine
	for i := range members {
		var list []string
		for j := range members {
			weight := 0
			if j == (i+1)%members { // each assumes that the next one takes everything
				weight = 100
			}
			list = append(list, fmt.Sprintf("{name: m%d, mark: %d, weight: %d}", j, 901+j, weight))
		}
		text := strings.Replace(rulesSpec, "{self: one, members: [{name: one, mark: 901}, {name: two, mark: 902}]}",
			fmt.Sprintf("{self: m%d, members: [%s]}", i, strings.Join(list, ", ")), 1)
		engines = append(engines, steer.New(compile(t, text), steer.Options{}))
	}
	for piece := 1; piece <= 3; piece++ {
		at, hops := 3, 0
		for ttl := 64; ; ttl-- {
			d := give(t, engines[at], fmt.Sprintf("udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=7 frag=1400 piece=%d ttl=%d", piece, ttl), 0)
			if d.Reason != lb.ReasonTier {
				break
			}
			at, hops = int(d.Mark)-901, hops+1
		}
		if at != 3 || hops != members && hops != 0 {
			t.Errorf("piece %d ended at member %d after %d hops", piece, at, hops)
		}
	}
}

// What nfqlb's own tables say of three flows, through the whole engine.
func TestMarksOfNFQLB(t *testing.T) {
	e := steer.New(compile(t, nfqlbSpec), steer.Options{})
	for line, mark := range map[string]uint32{
		"tcp 10.61.0.2:4000 > 10.96.0.1:5001": 102, // hash 3684100678, index 236, slot 1
		"udp [fd61::2]:4003 > [fd96::1]:5001": 104, // hash 3458611896, index 950, slot 3
	} {
		if d := give(t, e, line, 0); d.Mark != mark || d.Reason != lb.ReasonMaglev {
			t.Errorf("%s: %+v, want mark %d", line, d.Decision, mark)
		}
	}
	if n := e.Tables().Flows; n != 0 {
		t.Errorf("%d flows are remembered", n)
	}
	// What nfqlb shows of the tier's table for M=401, two members.
	table := strings.Fields("1 0 0 1 0 1 0 1 1 0 0 0 1 0 1 1 1 0 1 1 0 0 1 0 0")
	seen := 0
	for i := range 256 {
		src, dst := netip.AddrFrom4([4]byte{10, 61, 0, byte(i)}), netip.MustParseAddr("10.96.0.1")
		slot := flow.NFQLBAddresses(flow.Address(src), flow.Address(dst)) % 401
		if int(slot) >= len(table) {
			continue
		}
		seen++
		d := give(t, e, fmt.Sprintf("udp %s:5000 > %s:5001 payload=3000 id=7 frag=1400 piece=2", src, dst), 0)
		if away := d.Reason == lb.ReasonTier; away != (table[slot] == "1") || away && d.Mark != 202 {
			t.Errorf("%s, slot %d: %+v", src, slot, d.Decision)
		}
	}
	if seen < 5 {
		t.Errorf("only %d slots seen", seen)
	}
}

// What a flow of mode mark costs, parsing included, with the rule that matches behind all others.
func BenchmarkRules(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("maglev_size: 251\nservices:\n- name: s\n  mode: mark\n  backends: [{name: a, mark: 101}, {name: b, mark: 102}]\n  flows:\n")
			for i := range n - 1 {
				fmt.Fprintf(&text, "  - {name: r%d, priority: 1, protocols: [tcp, udp], destinations: [192.0.%d.%d, \"2001:db8:f::%x\"], destination_ports: [%d-%d]}\n", i, i>>8, i&255, i, 1+i, 100+i)
			}
			text.WriteString("  - {name: last}\n")
			e := steer.New(compile(b, text.String()), steer.Options{})
			var packets [][]byte
			for i := range 1024 {
				d, err := packet.ParseText(fmt.Sprintf("udp 10.0.%d.%d:5000 > 192.0.%d.%d:%d payload=64", i>>8, i&255, i%4, i*7%256, 20000+i*13))
				if err != nil {
					b.Fatal(err)
				}
				packets = append(packets, d.Packets[0])
			}
			var p packet.Packet
			now := time.Duration(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now += time.Microsecond
				_ = packet.Parse(packets[i%len(packets)], &p)
				if e.Packet(&p, now).Rule.Name != "last" {
					b.Fatal("another rule")
				}
			}
		})
	}
}

// The explanation names the rule that decided, and what a mark is for.
func TestWhyOfRules(t *testing.T) {
	e := steer.New(compile(t, rulesSpec), steer.Options{})
	for line, wants := range map[string][]string{
		"tcp 10.0.0.1:5000 > 192.0.2.1:80 flags=syn":                                             {"flow rule syn priority 9: tcp to 192.0.2.0/24,2001:db8:f::/48 with tcp[13:1] & 0x2 = 0x2, number 2 of 4", "service syn"},
		"udp 10.0.0.1:9899 > 192.0.2.1:9899 0fa013890000000100000000":                            {"SCTP inside of UDP", "sctp 10.0.0.1:4000 > 192.0.2.1:5001", "flow rule sctp", "the hash of its ports"},
		"udp 10.6.0.1:5000 > 192.0.2.1:7":                                                        {"flow rule nobody", "fwmark 0x1 (no_backend_mark)"},
		"udp 10.0.0.1:5000 > 198.51.100.1:7":                                                     {"no flow rule and no VIP matches", "fwmark 0x2 (no_service_mark)"},
		"udp 10.0.0.2:5000 > 192.0.2.1:7 payload=3000 frag=1400 piece=2":                         nil,
		"udp [2001:db8::3]:5000 > [2001:db8:f::1]:7 payload=3000 frag=1400 piece=1 id=3 ttl=254": nil,
	} {
		d, err := packet.ParseText(line)
		if err != nil {
			t.Fatal(err)
		}
		var p packet.Packet
		if err := packet.Parse(d.Packets[0], &p); err != nil {
			t.Fatal(err)
		}
		decision := e.Packet(&p, 0)
		if decision.Reason == lb.ReasonTier {
			wants = []string{"member two of the tier", "0x386"}
		}
		text := strings.Join(e.Why(&p, decision), "\n")
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", line, want, text)
			}
		}
		if text == "" {
			t.Errorf("%s: no word", line)
		}
	}
	dropping := steer.New(compile(t, strings.Replace(rulesSpec, "no_service_mark: 2", "no_service_mark: -1", 1)), steer.Options{})
	d, _ := packet.ParseText("udp 10.0.0.1:5000 > 198.51.100.1:7")
	var p packet.Packet
	_ = packet.Parse(d.Packets[0], &p)
	if text := strings.Join(dropping.Why(&p, dropping.Packet(&p, 0)), "\n"); !strings.Contains(text, "no_service_mark is -1: dropped") {
		t.Error(text)
	}
}
