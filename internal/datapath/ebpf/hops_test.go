package ebpf

import (
	"fmt"
	"testing"

	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
)

// TestRootManyWaysToClients: more ways to clients than are remembered, as with
// hundreds of clients on the balancer's own wire. The VIP is an address of the
// machine, so its stack would not carry on.
func TestRootManyWaysToClients(t *testing.T) {
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			lab := netlabtest.Up(t, twoClients("ebways"+hook.String(), true))
			serve(t, lab.Namespace("zone1"), ":8080")
			gateway := lab.Namespace("gateway")
			for _, vip := range []string{"10.0.0.1/32", "2001:db8::1/128"} {
				if out, err := gateway.Exec(t.Context(), "ip", "addr", "add", vip, "dev", "lo"); err != nil {
					t.Fatal(out, err)
				}
			}
			b := start(t, gateway, Config{Interfaces: threeVeths, Hook: hook},
				"services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
			for i := range uint32(256) {
				other := bpfClientHop{Dmac: [6]byte{2, 0, 0, 9, 9, byte(i)}, Ifindex: 1 << 20, Mtu: 1500, Claimed: 1, Ready: 1}
				if err := b.d.tables.maps[bpfMapClientHops].Put(i, other); err != nil {
					t.Fatal(err)
				}
			}
			for i, vip := range bothVIPs {
				for _, network := range []string{"tcp", "udp"} {
					c := dialFrom(t, lab.Namespace("client1"), network, []string{"10.1.1.2:0", "[2001:db8:1:1::2]:0"}[i], vip)
					ask(t, c, fmt.Sprint(network, " to ", vip))
				}
			}
		})
	}
}
