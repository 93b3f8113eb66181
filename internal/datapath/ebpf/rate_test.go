package ebpf

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// TestRootNewFlowRateOnManyCPUs: processors that spend a service's credit at
// the same time spend no more than there is, and all of it. The other flows go on
// without an entry.
func TestRootNewFlowRateOnManyCPUs(t *testing.T) {
	t.Parallel()
	const rate, each = 20000, 30000
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			w := newWorld(t)
			defer w.close()
			d := w.serving(t, hook, fmt.Sprintf(`
limits: {flows: 131072}
services:
- name: limited
  mode: l2dsr
  new_flow_rate: %d
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.2.0.1"}]
`, rate))
			d.tables.Control.Now = 1 << 30 // and there it stays
			var all sync.WaitGroup
			for cpu := range runtime.NumCPU() {
				all.Add(1)
				go func() {
					defer all.Done()
					runtime.LockOSThread() // never unlocked: the thread, bound to its processor, ends with the goroutine
					var one unix.CPUSet
					one.Set(cpu)
					if err := unix.SchedSetaffinity(0, &one); err != nil {
						t.Error(err)
						return
					}
					frame := frameOf(text(t, "udp 10.0.0.1:5000 > 192.0.2.2:80 csum=0"))
					for i := range each {
						binary.BigEndian.PutUint32(frame[14+12:], 10<<24|uint32(cpu)<<18|uint32(i))
						if _, err := d.program(hook).Run(&ebpf.RunOptions{Data: frame, Repeat: 1}); err != nil {
							t.Error(err)
							return
						}
					}
				}()
			}
			all.Wait()
			counts := d.Counters()
			let, carried := counts.Backends[lb.Target{Service: "limited", Backend: "a"}].Opened, counts.Services["limited"][lb.ReasonMaglev].Packets
			if let != rate || carried != uint64(each*runtime.NumCPU()) {
				t.Errorf("%d flows entered, %d carried, of %d with credit for %d", let, carried, each*runtime.NumCPU(), rate)
			}
		})
	}
}

// TestRootManyRanges: as many port ranges as VIPs may have, on addresses that
// hold too many for their own line, twice at once as during a change.
func TestRootManyRanges(t *testing.T) {
	t.Parallel()
	const addresses, each = lb.MaxVIPs / 6, 6
	var spec strings.Builder
	spec.WriteString("services:\n- name: ranges\n  mode: l2dsr\n  vips:\n")
	for a := range addresses {
		for i := range each {
			fmt.Fprintf(&spec, "  - {address: \"192.0.%d.%d\", protocol: %s, port: %d-%d}\n", a>>8, a&255, []string{"udp", "tcp"}[i%2], 1000*i+1000, 1000*i+1500)
		}
	}
	spec.WriteString("  backends: [{name: a, address: \"10.2.0.1\"}]\n")
	w := newWorld(t)
	defer w.close()
	d := w.serving(t, attach.HookTCX, spec.String())
	w.serving(t, attach.HookTCX, strings.ReplaceAll(spec.String(), "name: a", "name: b"))
	for _, a := range []int{0, addresses - 1} {
		r, err := w.packet(d, text(t, fmt.Sprintf("tcp 10.0.0.1:5 > 192.0.%d.%d:6300 flags=syn", a>>8, a&255)), false, 0)
		if err != nil || r.Backend != "b" {
			t.Errorf("address %d: %+v, %v", a, r, err)
		}
	}
}
