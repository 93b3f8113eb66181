package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/replay"
)

func tracer(t *testing.T) *replay.Tracer {
	t.Helper()
	return tracerOf(t, `hash_key: 00112233445566778899aabbccddeeff
limits: {fragment_ttl: 1s}
services:
- name: pool
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  backends: [{name: a, address: 10.1.0.1}]
`)
}

func tracerOf(t *testing.T, text string) *replay.Tracer {
	t.Helper()
	spec, _, err := config.Decode[lb.Spec]("spec", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := lb.Compile(spec, nil, lb.AllCaps())
	if err != nil {
		t.Fatal(err)
	}
	return replay.New(snapshot)
}

// summary is the rows without the steps that led to them.
func summary(tracer *replay.Tracer) string {
	var rows []string
	for _, r := range tracer.Rows {
		rows = append(rows, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", r.Number, r.Action, r.Reason, r.Backend)))
	}
	return strings.Join(rows, ", ")
}

// fragments gives the fragments of one datagram in the order of the indices, each so much later than the one before.
func fragments(t *testing.T, tracer *replay.Tracer, apart time.Duration, indices ...int) {
	t.Helper()
	described, err := packet.ParseText("udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=9 frag=1400")
	if err != nil {
		t.Fatal(err)
	}
	for n, i := range indices {
		const raw = 101 // LINKTYPE_RAW
		tracer.Captured(packet.Captured{Data: described.Packets[i], Link: raw, Time: time.Hour + time.Duration(n)*apart})
	}
}

func TestEarlyFragmentsAreReportedAgainWhenTheyAreReleased(t *testing.T) {
	one := tracer(t)
	fragments(t, one, time.Millisecond, 1, 2, 0)
	want := "1 hold fragment_early, 2 hold fragment_early, 3 forward maglev a, 1 forward fragment a, 2 forward fragment a"
	if got := summary(one); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if one.Summary.Packets != 3 || one.Summary.Backends["pool/a"] != 3 || one.Summary.Reasons["fragment_early"] != 2 {
		t.Errorf("%+v", one.Summary)
	}
}

// A fragment that waited for longer than a data path holds it is not released.
func TestHeldFragmentsExpire(t *testing.T) {
	one := tracer(t)
	fragments(t, one, 2*time.Second, 1, 0)
	if got, want := summary(one), "1 hold fragment_early, 2 forward maglev a"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A capture's rows have times since its first packet, and those beyond the limit are counted, not kept.
func TestLimit(t *testing.T) {
	one := tracer(t)
	one.Limit = 2
	fragments(t, one, 250*time.Millisecond, 0, 1, 2)
	if len(one.Rows) != 2 || one.Summary.Packets != 3 || one.Rows[0].Time == nil || *one.Rows[0].Time != 0 || *one.Rows[1].Time != 0.25 {
		t.Errorf("%+v, %+v", one.Rows, one.Summary)
	}
}

func TestTextIsExplained(t *testing.T) {
	one := tracer(t)
	for _, line := range []string{"udp 10.0.0.1:5000 > 192.0.2.1:5684", "udp 10.0.0.1:5000 > 192.0.2.2:5684"} {
		if err := one.Text(line); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := summary(one), "1 forward maglev a, 2 pass not_service"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	first := one.Rows[0]
	if first.Time != nil || first.Service != "pool" || first.Flow == "" || !slices.ContainsFunc(first.Why, func(step string) bool { return strings.Contains(step, "pool") }) {
		t.Errorf("%+v", first)
	}
	if err := one.Text("no packet"); err == nil || one.Summary.Packets != 2 {
		t.Errorf("%v, %+v", err, one.Summary)
	}
}

// Each kind of packet is named by what it has: ports, an id, an identifier, or what an error is about.
func TestFlowsAreNamed(t *testing.T) {
	one := tracer(t)
	for line, want := range map[string]string{
		"udp 10.0.0.1:5000 > 192.0.2.1:5684":                                     "udp 10.0.0.1:5000 > 192.0.2.1:5684",
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 vlan=10":                             "udp 10.0.0.1:5000 > 192.0.2.1:5684",
		"udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=9 frag=1400 piece=2": "udp 10.0.0.1 > 192.0.2.1 fragment of id 9",
		"ping 10.0.0.1 > 192.0.2.1 ident=7":                                      "icmp 10.0.0.1 > 192.0.2.1 ident 7",
		"proto47 10.0.0.1 > 192.0.2.1":                                           "47 10.0.0.1 > 192.0.2.1",
		"unreachable 10.9.9.9 about udp 192.0.2.1:5684 > 10.0.0.1:5000":          "icmp error about udp 192.0.2.1:5684 > 10.0.0.1:5000",
	} {
		if err := one.Text(line); err != nil {
			t.Fatal(err)
		}
		if got := one.Rows[len(one.Rows)-1]; got.Flow != want || got.Kind == "" {
			t.Errorf("%s: flow %q of kind %q, want %q", line, got.Flow, got.Kind, want)
		}
	}
}

// What is no IP packet, or a broken one, has its reason and the parser's error; a capture without a limit has no times.
func TestBrokenPackets(t *testing.T) {
	one := tracer(t)
	const ethernet = 1
	arp := append(make([]byte, 12), 0x08, 0x06, 0, 1, 8, 0)
	broken := append(make([]byte, 12), 0x08, 0x00, 0x45, 0)
	for _, frame := range [][]byte{arp, broken} {
		one.Captured(packet.Captured{Data: frame, Link: ethernet, Time: time.Hour})
	}
	if got, want := summary(one), "1 pass not_ip, 2 drop malformed"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, row := range one.Rows {
		if len(row.Why) != 1 || row.Why[0] == "" || row.Flow != "" || row.Time != nil {
			t.Errorf("%+v", row)
		}
	}
}

// With a limit of 0 all packets are counted and none is kept.
func TestLimitOfNone(t *testing.T) {
	one := tracer(t)
	one.Limit = 0
	fragments(t, one, time.Millisecond, 0, 1)
	if len(one.Rows) != 0 || one.Summary.Packets != 2 || one.Summary.Backends["pool/a"] != 2 {
		t.Errorf("%d rows, %+v", len(one.Rows), one.Summary)
	}
}

// A flow rule and a member of the tier are named.
func TestRulesAndMembers(t *testing.T) {
	one := tracerOf(t, `hash_key: 00112233445566778899aabbccddeeff
tier: {self: one, members: [{name: one, mark: 901}, {name: two, mark: 902}]}
services:
- name: pool
  mode: mark
  flows: [{name: all-udp, protocols: [udp]}]
  backends: [{name: a, mark: 101}]
`)
	if err := one.Text("udp 10.0.0.1:5000 > 192.0.2.1:5684"); err != nil {
		t.Fatal(err)
	}
	if got := one.Rows[0]; got.Rule != "all-udp" || got.Service != "pool" || got.Mark != 101 || got.Member != "" {
		t.Errorf("%+v", got)
	}
	for client := range 32 { // one of them belongs to the other member
		if err := one.Text(fmt.Sprintf("udp 10.0.1.%d:5000 > 192.0.2.1:5684 payload=3000 id=7 frag=1400 piece=1", client)); err != nil {
			t.Fatal(err)
		}
	}
	sent := 0
	for _, row := range one.Rows {
		if row.Member != "" {
			sent++
			if row.Member != "two" || row.Mark != 902 {
				t.Errorf("%+v", row)
			}
		}
	}
	if sent == 0 || one.Summary.Backends["tier/two"] != sent {
		t.Errorf("%d rows name the member, %+v", sent, one.Summary.Backends)
	}
}

// A fragment is released at most once, and not at the very end of its time.
func TestReleaseOfHeldFragments(t *testing.T) {
	one := tracer(t)
	fragments(t, one, time.Second, 1, 0)
	if got, want := summary(one), "1 hold fragment_early, 2 forward maglev a"; got != want {
		t.Errorf("after exactly the fragments' time: %s, want %s", got, want)
	}
	one = tracer(t)
	fragments(t, one, time.Millisecond, 1, 0, 0)
	if got, want := summary(one), "1 hold fragment_early, 2 forward maglev a, 1 forward fragment a, 3 forward conntrack a"; got != want {
		t.Errorf("the first fragment twice: %s, want %s", got, want)
	}
}

// A capture of any length holds a bounded number of early fragments: those whose time is over go once they are many.
func TestHeldFragmentsAreBounded(t *testing.T) {
	one := tracerOf(t, `hash_key: 00112233445566778899aabbccddeeff
limits: {fragment_ttl: 1s, held_fragments: 4}
services:
- name: pool
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  backends: [{name: a, address: 10.1.0.1}]
`)
	largest := 0
	for i := range 100 {
		described, err := packet.ParseText(fmt.Sprintf("udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=%d frag=1400", i+1))
		if err != nil {
			t.Fatal(err)
		}
		const raw = 101                                 // LINKTYPE_RAW
		at := time.Duration(i) * 250 * time.Millisecond // a fourth one is no longer held when it is a second old
		one.Captured(packet.Captured{Data: described.Packets[1], Link: raw, Time: at})
		largest = max(largest, one.Held())
		if i%25 == 24 { // the first one comes 3/4 s after its other fragment and releases it
			one.Captured(packet.Captured{Data: described.Packets[0], Link: raw, Time: at + 750*time.Millisecond})
		}
	}
	if largest != 9 { // one more than twice held_fragments: then a sweep is due
		t.Errorf("%d datagrams were held at a time, want 9", largest)
	}
	if got := one.Summary.Reasons; got["fragment_early"] != 100 || got["fragment"] != 4 {
		t.Errorf("%v: want 100 held and 4 of them released", got)
	}
}
