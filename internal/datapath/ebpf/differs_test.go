package ebpf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
)

// TestRootApplyWritesWhatDiffers: of many services, a change of one writes that one; also after a change that failed half way,
// the maps have what the snapshot says.
func TestRootApplyWritesWhatDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := func(more string) string {
		var b strings.Builder
		b.WriteString("maglev_size: 251\nservices:\n")
		for i := range 50 {
			fmt.Fprintf(&b, "- name: s%02d\n  vips: [{address: 192.0.2.%d, protocol: udp, port: 80}]\n  backends: [{name: a, address: 10.1.0.%d}%s]\n", i, i+1, i+1, more)
			more = ""
		}
		return b.String()
	}
	ebpftest.Do(t, w.host, func() error {
		d, err := Open(Config{Hook: attach.HookTCX, detached: true, manual: true})
		if err != nil {
			return err
		}
		defer d.Close()
		fewer, more := compile(t, spec(""), d.Caps()), compile(t, spec(", {name: b, address: 10.2.0.1}"), d.Caps())
		for range 2 { // both generations
			if err := d.Apply(fewer); err != nil {
				return err
			}
		}
		writes := map[string]int{}
		d.tables.Fault = func(name string) error {
			if writes[name]++; name == bpf.MapNatBackends && writes[name] == 1 {
				return fmt.Errorf("no room")
			}
			return nil
		}
		if err := d.Apply(more); err == nil {
			t.Error("the change did not fail")
		}
		if err := d.Apply(more); err != nil {
			return err
		}
		if writes[bpf.MapVips] != 0 || writes[bpf.MapServices] != 1 || writes[bpf.MapNatBackends] != 2 {
			t.Errorf("writes for a backend more: %v", writes)
		}
		d.checkVIPs(t)
		service := d.state.inForce["s00"]
		var record bpf.Service
		if err := d.tables.Maps[bpf.MapServices].Lookup(d.state.active*bpf.MaxServices+uint32(service.Number), &record); err != nil {
			return err
		}
		if record.Maglev != uint32(service.Maglev.Start) || record.MaglevSize != 251 {
			t.Errorf("the service has the table at %d, the program reads %d", service.Maglev.Start, record.Maglev)
		}
		return nil
	})
}
