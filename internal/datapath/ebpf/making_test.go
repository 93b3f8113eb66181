package ebpf

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
)

// A source port changes hands, and a late answer to the old flow comes while another processor makes the new one: the entry in the slot has the new
// flow's reply already, and still the endpoints of the flow that had the slot before. The answer is no one's then.
func TestRootAnswersWhileAFlowIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		t.Run(fmt.Sprint(hook), func(t *testing.T) {
			d := w.serving(t, hook, `
limits: {flows: 24}
services:
- name: one
  mode: nat
  vips: [{address: "192.0.2.1", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.1.0.1", port: 7000}]
  snat: {addresses: ["198.18.0.1"], ports: 2000-2063}
`)
			run := func(frame []byte) (out []byte, forwarded bool) {
				t.Helper()
				verdict, out, _, err := w.run(d, frame, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				return out, verdict == ebpftest.Redirected(hook)
			}
			answer, forwarded := run(frameOf(text(t, "udp 10.2.0.9:5000 > 192.0.2.1:80 csum=0 01")))
			if !forwarded {
				t.Fatal("the client's packet is not forwarded")
			}
			ip := answer[14:]
			copy(ip[12:], slices.Concat(ip[16:20], ip[12:16], ip[22:24], ip[20:22])) // back to where it came from
			ip[8] = 64
			if _, forwarded = run(answer); !forwarded {
				t.Fatal("the answer is not forwarded")
			}
			for i := range d.tables.Entries {
				if e := &d.tables.Entries[i]; atomic.LoadUint64(&e.Reply) != 0 {
					made := e.Target
					atomic.StoreUint32(&e.Target, bpf.NoNumber) // as flow_make does before it enters the reply
					if _, forwarded = run(answer); forwarded {
						t.Error("an answer to an entry that is being made is forwarded")
					}
					atomic.StoreUint32(&e.Target, made)
				}
			}
			if _, forwarded = run(answer); !forwarded {
				t.Error("the answer to the entry that is whole is not forwarded")
			}
		})
	}
}
