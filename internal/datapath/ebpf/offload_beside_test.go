package ebpf

import (
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootOffloadBesideBalancer: a balancer and the relay share interfaces, except that XDP takes one program.
func TestRootOffloadBesideBalancer(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, relayNet("turnlb"+hook.String()))
			gateway := lab.Namespace("gateway")
			r := newRelayRig(t, lab.Namespace("client"), gateway, lab.Namespace("peer"), families()["4to4"])
			start(t, gateway, Config{Interfaces: []string{"front", "back"}, Hook: hook}, `
services:
- name: echo
  vips: [{address: 10.0.0.1, protocol: udp, port: 80}]
  backends: [{name: a, address: 10.2.0.2}]
`)
			if hook == attach.HookXDP {
				do(t, gateway, func() error {
					o, err := OpenOffload(OffloadConfig{Interfaces: []string{"front"}, Hook: attach.HookXDP})
					if err == nil {
						o.Close()
					}
					if err == nil || !strings.Contains(err.Error(), "weir_xdp") {
						t.Errorf("XDP that the balancer has: %v", err)
					}
					return nil
				})
			}
			o := startOffload(t, gateway, OffloadConfig{Interfaces: []string{"front", "back"}})
			if _, err := o.Add(r.channel); err != nil {
				t.Fatal(err)
			}
			await(t, "packets relayed in the kernel", func() bool {
				up, down := r.exchange([]byte("beside"), nil)
				return up == 0 && down == 0
			})
			if report := o.Report(); report.Hook != "tcx" || hook == attach.HookTCX && len(report.Interfaces[0].Beside) != 1 {
				t.Errorf("%+v", report)
			}
		})
	}
}
