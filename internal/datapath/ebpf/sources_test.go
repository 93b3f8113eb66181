package ebpf

import (
	"maps"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
)

const sharedVIP = `limits: {flows: 64, fragments: 64}
services:
- name: office
  mode: l2dsr
  sources: ["10.1.0.0/16", "10.2.0.0/16", "2001:db8:1::/48"]
  vips: [{address: 192.0.2.1, protocol: udp, port: 53}, {address: 192.0.2.1, protocol: tcp, port: 53}]
  backends: [{name: a, address: 10.8.0.1}]
- name: rest
  mode: l2dsr
  vips: [{address: 192.0.2.1, protocol: udp, port: 53}]
  backends: [{name: a, address: 10.8.0.2}]
`

// TestRootSourcesAreTakenOver: the prefixes of clients in the kernel's table are those of the two last configurations, each
// written once, also after changes and after a restart, and none is left when no service has sources.
func TestRootSourcesAreTakenOver(t *testing.T) {
	t.Parallel()
	p := newPinned(t, "ebsrc", attach.HookTCX)
	less := strings.Replace(sharedVIP, `"10.1.0.0/16", `, "", 1)
	none := strings.Replace(strings.Replace(less, `  sources: ["10.2.0.0/16", "2001:db8:1::/48"]`+"\n", "", 1), "udp, port: 53}]\n  backends: [{name: a, address: 10.8.0.2}]", "udp, port: 54}]\n  backends: [{name: a, address: 10.8.0.2}]", 1)
	for i, c := range []struct {
		spec string
		// Prefixes of the set of both services and of the set of one, with those of all other clients in both families.
		want int
	}{{sharedVIP, 10}, {less, 8}, {none, 0}} {
		d := p.open(c.spec) // a process of its own for each
		if d.restored != (i > 0) {
			t.Errorf("step %d: restored %v", i, d.restored)
		}
		if n := len(d.state.generations[d.state.active&1].clients); n != c.want {
			t.Errorf("step %d: %d prefixes are in force, want %d", i, n, c.want)
		}
		inMap := map[bpf.ClientPrefix]uint32{}
		var prefix bpf.ClientPrefix
		var service uint32
		for all := d.tables.Maps[bpf.MapClients].Iterate(); all.Next(&prefix, &service); {
			inMap[prefix] = service
		}
		both := maps.Clone(d.state.generations[0].clients)
		maps.Copy(both, d.state.generations[1].clients)
		if !maps.Equal(inMap, both) {
			t.Errorf("step %d: the table has %v, the state %v", i, inMap, both)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
