package ebpf

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
)

const handshakeSpec = `
services:
- name: nat
  mode: nat
  timeouts: {tcp_opening: 10s, tcp_closing: 2s, tcp_established: 1h}
  vips: [{address: "192.0.2.1", protocol: tcp, port: 80}]
  snat: {addresses: ["198.18.0.1"], ports: 2000-2063}
  backends: [{name: a, address: "10.1.0.1"}]
`

// TestRootLateAnswerToAnotherClient: a client gets the port of a handshake under way, then the SYN-ACK that was for the other
// one, which it resets, and then its own. Its connection is established: a closed one would lose the port.
func TestRootLateAnswerToAnotherClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		f := &traffic{t: t, w: w, d: w.serving(t, hook, handshakeSpec)}
		client := func(flags string) string { return "tcp 10.0.0.1:2000 > 192.0.2.1:80 flags=" + flags }
		_, _, out := f.send(client("syn"), "maglev")
		answer := f.answer(out, "syn,ack")
		f.send(answer, "reply")
		f.send(client("rst"), "conntrack")
		f.send(answer, "reply")
		f.send(client("ack"), "conntrack")
		if n := f.d.tables.Fill(f.d.now()).Proven; n != 1 {
			t.Errorf("%s: %d flows are proven", hook, n)
		}
		f.now += time.Minute
		f.send(client("ack"), "conntrack")
		f.send(f.answer(out, "ack"), "reply")

		f.send(client("fin,ack"), "conntrack")
		f.send(answer, "reply") // again, and late: it opens nothing
		f.now += 3 * time.Second
		f.send(f.answer(out, "ack"), "not_service")
	}
}

// TestRootAnswerOfAHandshakeIsNoted: whoever ends a flow compares and swaps its meta. So a SYN-ACK changes that before it is
// forwarded, also in the tick of the SYN, and is dropped if the flow has ended and nothing else says so yet.
func TestRootAnswerOfAHandshakeIsNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		f := &traffic{t: t, w: w, d: w.serving(t, hook, handshakeSpec)}
		flow := func() *uint64 {
			for i := range f.d.tables.Flows {
				for j := range f.d.tables.Flows[i].Slots {
					if slot := &f.d.tables.Flows[i].Slots[j]; slot.Fingerprint > 1 && maps.Alive(slot.Meta, f.d.now()) {
						return &slot.Meta
					}
				}
			}
			t.Fatal("no flow")
			return nil
		}
		_, _, out := f.send("tcp 10.0.0.1:2000 > 192.0.2.1:80 flags=syn", "maglev")
		meta := flow()
		before := *meta
		f.send(f.answer(out, "syn,ack"), "reply")
		if *meta == before || maps.Proven(*meta) {
			t.Errorf("%s: meta is %x before the SYN-ACK and %x after it", hook, before, *meta)
		}
		f.now += time.Minute
		_, _, out = f.send("tcp 10.0.0.1:2001 > 192.0.2.1:80 flags=syn", "maglev")
		meta = flow()
		*meta = (f.d.now()-64)<<27 | *meta&0xffffff // way_ended
		f.send(f.answer(out, "syn,ack"), "flow_table_full")
	}
}
