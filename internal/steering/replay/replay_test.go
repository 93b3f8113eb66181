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
	spec, _, err := config.Decode[lb.Spec]("spec", []byte(`hash_key: 00112233445566778899aabbccddeeff
limits: {fragment_ttl: 1s}
services:
- name: pool
  vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
  backends: [{name: a, address: 10.1.0.1}]
`))
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
