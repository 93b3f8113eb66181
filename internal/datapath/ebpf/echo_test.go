package ebpf

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootPingsAreAnswered: the balancer itself answers what ping sends to its VIPs, small and large, over both families and in a
// VLAN, though no backend is there. A ping in fragments gets no answer.
func TestRootPingsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) { pingsAreAnswered(t, hook) })
	}
}

func pingsAreAnswered(t *testing.T, hook attach.Hook) {
	t.Parallel()
	lab := netlabtest.Up(t, twoClients("ebecho"+hook.String(), true))
	gateway, client := lab.Namespace("gateway"), lab.Namespace("client1")
	b := start(t, gateway, Config{Interfaces: threeVeths, Hook: hook}, "services:\n- name: echo\n  mode: nat\n  ping: balancer\n"+vips[1:]+"  backends: []\n")
	for _, vip := range []string{"10.0.0.1", "2001:db8::1"} {
		for _, size := range []string{"0", "56", "1400"} {
			// Ping compares what comes back, and the kernel has checked the checksums.
			if out, err := client.Exec(t.Context(), "ping", "-c3", "-i0.01", "-W10", "-s"+size, vip); err != nil || !strings.Contains(out, "3 received, 0%") || !strings.Contains(out, "ttl=64") {
				t.Errorf("ping -s %s %s: %v\n%s", size, vip, err, out)
			}
		}
	}
	if n := counted(t, b, "echo_answered"); n != 18 {
		t.Errorf("%d pings were answered, want 18", n)
	}
	if out, err := client.Exec(t.Context(), "ping", "-c1", "-W0.2", "-s3000", "10.0.0.1"); err == nil {
		t.Errorf("a ping in fragments is answered:\n%s", out)
	}
	if n := counted(t, b, "echo_refused"); n != 3 {
		t.Errorf("%d fragments were refused, want 3", n)
	}
	_, mac, err := gateway.Interface("veth1")
	if err != nil {
		t.Fatal(err)
	}
	taggedPings(t, openWire(t, client, "eth0"), mac)
}

// taggedPings sends pings of both families in VLAN 7 and wants their replies there.
func taggedPings(t *testing.T, w *wire, gateway [6]byte) {
	t.Helper()
	for client, vip := range map[string]string{"10.1.1.2": "10.0.0.1", "2001:db8:1:1::2": "2001:db8::1"} {
		from, to := netip.AddrPortFrom(netip.MustParseAddr(client), 0), netip.AddrPortFrom(netip.MustParseAddr(vip), 0)
		proto, request, reply := flow.ProtoICMP, uint8(8), uint8(0)
		if to.Addr().Is6() {
			proto, request, reply = flow.ProtoICMPv6, 128, 129
		}
		ping := packet.Build{Src: from, Dst: to, Proto: proto, ICMPType: request, Payload: []byte("tagged"), VLANs: []uint16{7}}
		w.send(ping.AppendFrame(nil, gateway, w.mac, ping.Append(nil)))
		p, tag := w.receive("reply", func(p *packet.Packet) bool {
			return p.Kind == packet.KindEcho && p.ICMPType == reply && p.SrcAddr() == flow.Address(to.Addr())
		})
		if tag != 7 || string(p.PayloadBytes()) != "tagged" || !p.Verify() || p.TTL != 64 {
			t.Errorf("%s: tag %d, TTL %d, %q, checksum right: %v", vip, tag, p.TTL, p.PayloadBytes(), p.Verify())
		}
	}
}

// TestRootDamagedPings: a wrong checksum stays wrong, so that no client takes a reply to a damaged ping.
func TestRootDamagedPings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		s := small(compile(t, "services:\n- name: echo\n  mode: nat\n  ping: balancer\n"+vips[1:]+"  backends: []\n", Caps(hook)))
		d := w.open(t, hook, s.Limits)
		if err := d.Apply(s); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"ping 10.1.0.1 > 10.0.0.1 68656c6c6f", "ping [2001:db8:1::1] > [2001:db8::1] 68656c6c6f"} {
			described, err := packet.ParseText(line)
			if err != nil {
				t.Fatal(err)
			}
			for _, damage := range []byte{0, 1} {
				data := append([]byte(nil), described.Packets[0]...)
				data[len(data)-1] ^= damage
				r, err := w.packet(d, data, false, 0)
				var p packet.Packet
				if err == nil {
					err = packet.Parse(r.Out, &p)
				}
				if err != nil || r.Reason != lb.ReasonEchoAnswered || p.Verify() != (damage == 0) {
					t.Errorf("%s: %s, %d bits wrong: %v, %s, checksum right: %v", hook, line, damage, err, r.Reason, p.Verify())
				}
			}
		}
	}
}
