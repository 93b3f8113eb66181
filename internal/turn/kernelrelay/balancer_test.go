package kernelrelay

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootOffloadWithBalancer: a balancer and the relay share interfaces, except that XDP takes one program.
func TestRootOffloadWithBalancer(t *testing.T) {
	t.Parallel()
	for _, hook := range ebpftest.Hooks() {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			lab := netlabtest.Up(t, relayNet("turnlb"+hook.String()))
			gateway := lab.Namespace("gateway")
			r := newRelayTestbed(t, lab.Namespace("client"), gateway, lab.Namespace("peer"), families()["4to4"])
			startBalancer(t, gateway, ebpf.Config{Interfaces: []string{"front", "back"}, Hook: hook})
			if hook == attach.HookXDP {
				ebpftest.Do(t, gateway, func() error {
					o, err := Open(Config{Interfaces: []string{"front"}, Hook: attach.HookXDP})
					if err == nil {
						o.Close()
					}
					if err == nil || !strings.Contains(err.Error(), "weir_xdp") {
						t.Errorf("XDP that the balancer has: %v", err)
					}
					return nil
				})
			}
			o := startRelay(t, gateway, Config{Interfaces: []string{"front", "back"}})
			if _, err := o.Add(r.channel); err != nil {
				t.Fatal(err)
			}
			netlabtest.Eventually(t, "packets relayed in the kernel", func() bool {
				up, down := r.exchange([]byte("with"), nil)
				return up == 0 && down == 0
			})
			if report := o.Report(); report.Hook != "tcx" || hook == attach.HookTCX && len(report.Interfaces[0].Others) != 1 {
				t.Errorf("%+v", report)
			}
		})
	}
}

// startBalancer runs a balancer of one service in a namespace until the test ends.
func startBalancer(t *testing.T, host *netlab.Host, c ebpf.Config) {
	t.Helper()
	spec, _, err := config.Decode[lb.Spec]("spec.yaml", []byte(`
services:
- name: echo
  vips: [{address: 10.0.0.1, protocol: udp, port: 80}]
  backends: [{name: a, address: 10.2.0.2}]
`))
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := lb.Compile(spec, nil, ebpf.Caps(c.Hook))
	if err != nil {
		t.Fatal(err)
	}
	var d *ebpf.Datapath
	ebpftest.Do(t, host, func() error {
		if d, err = ebpf.Open(c); err != nil {
			return err
		}
		return d.Apply(snapshot)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, d.Close()); err != nil {
			t.Error(err)
		}
	})
}
