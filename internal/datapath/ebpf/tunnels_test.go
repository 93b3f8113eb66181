package ebpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/steer/steertest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// The ends of tunnels in these tests.
var (
	tunnelFrom4, tunnelTo4 = netip.MustParseAddr("198.18.7.1"), netip.MustParseAddr("198.18.8.1")
	tunnelFrom6, tunnelTo6 = netip.MustParseAddr("2001:db8:ffff:7::1"), netip.MustParseAddr("2001:db8:ffff:8::1")
)

func tunnelsEnd() *lb.Decap {
	return &lb.Decap{Addresses: netlab.Prefixes("198.18.8.0/28", "2001:db8:ffff:8::1/128"), From: netlab.Prefixes("198.18.7.1/32", "2001:db8:ffff:7::/64")}
}

// tunnelPath runs a case of the corpus with each packet in a tunnel that ends at the balancer, each of four kinds in turn.
type tunnelPath struct {
	path
	tunnelled *int
}

func (p *tunnelPath) Apply(s *lb.Snapshot) error {
	here := *s
	here.Decap = tunnelsEnd()
	return p.path.Apply(&here)
}

func (p *tunnelPath) Packet(data []byte, frame bool, now time.Duration) (steertest.Result, error) {
	if !frame {
		data = frameOf(data)
	}
	sent := data
	// BPF_PROG_TEST_RUN leaves tags in the frame, which the kernel takes off before the TCX hook.
	if at := ipAt(data); at == 14 || at > 14 && p.hook == attach.HookXDP {
		var ip []byte
		switch *p.tunnelled++; *p.tunnelled % 4 {
		case 0:
			ip = packet.AppendIPIP(nil, tunnelFrom4, tunnelTo4, data[at:])
		case 1:
			ip = packet.AppendIPIP(nil, tunnelFrom6, tunnelTo6, data[at:])
		case 2:
			ip = packet.AppendGUE(nil, tunnelFrom4, tunnelTo4, 4000, data[at:])
		case 3:
			ip = packet.AppendGUE(nil, tunnelFrom6, tunnelTo6, 4000, data[at:])
		}
		sent = around(data[:at], ip)
	}
	r, err := p.w.check(p.d, sent, data, now)
	if err == nil && (r.Action == lb.Hold || p.held.count > 0) {
		err = p.w.give(p.d, p.held)
	}
	return r, err
}

// ipAt returns where a whole IP header begins in a frame; 0: nowhere.
func ipAt(frame []byte) int {
	at := 14
	for at+20 <= len(frame) {
		switch kind := binary.BigEndian.Uint16(frame[at-2:]); kind {
		case 0x8100, 0x88a8:
			at += 4
		case 0x0800, 0x86dd:
			if frame[at]>>4 == 6 && at+40 > len(frame) || at > 22 {
				return 0
			}
			return at
		default:
			return 0
		}
	}
	return 0
}

// around puts a link header before a packet of either family.
func around(link, ip []byte) []byte {
	frame := append(bytes.Clone(link), ip...)
	binary.BigEndian.PutUint16(frame[len(link)-2:], 0x0800)
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(frame[len(link)-2:], 0x86dd)
	}
	return frame
}

// corpusThroughTunnels: a packet in a tunnel that ends here is treated as without it, in all cases of the corpus.
func corpusThroughTunnels(t *testing.T, w *world, hook attach.Hook) {
	tunnelled := 0
	t.Run("corpus", func(t *testing.T) {
		steertest.Run(t, beyond(hook), func(t *testing.T) steertest.Path { return &tunnelPath{path{t: t, w: w, hook: hook}, &tunnelled} })
	})
	if tunnelled < 500 {
		t.Errorf("only %d packets were in a tunnel", tunnelled)
	}
}

// Which tunnels end at a balancer, and what becomes of the others, also after changes of the configuration.
func TestRootTunnelsThatEndHere(t *testing.T) {
	for _, hook := range []attach.Hook{attach.HookXDP, attach.HookTCX} {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			defer w.close()
			snapshot := compile(t, `services:
- name: s
  mode: l3dsr
  vips: [{address: 10.0.0.1, protocol: udp, port: 53}]
  backends: [{name: a, address: 10.8.0.1}]
`, Caps(hook))
			d := w.open(t, hook, snapshot.Limits)
			apply := func(decap *lb.Decap) {
				t.Helper()
				s := *snapshot
				s.Decap = decap
				if err := d.Apply(&s); err != nil {
					t.Fatal(err)
				}
				w.hops(d)
			}
			ip := (&packet.Build{Src: netip.MustParseAddrPort("192.0.2.7:4000"), Dst: netip.MustParseAddrPort("10.0.0.1:53"), Proto: flow.ProtoUDP, Payload: []byte("hello")}).Append(nil)
			want := func(what string, outer []byte, reason lb.Reason) {
				t.Helper()
				r, err := w.check(d, frameOf(outer), frameOf(ip), 0)
				if err != nil || r.Reason != reason {
					t.Errorf("%s: %s, want %s; %v", what, r.Reason, reason, err)
				}
			}
			plain, other := packet.AppendIPIP(nil, tunnelFrom4, tunnelTo4, ip), netip.MustParseAddr("198.18.7.2")
			apply(nil)
			want("no tunnel ends here", plain, lb.ReasonNotService)
			apply(tunnelsEnd())
			want("the first packet", plain, lb.ReasonMaglev)
			want("the next one", packet.AppendGUE(nil, tunnelFrom6, tunnelTo6, 4000, ip), lb.ReasonConntrack)
			want("without a tunnel", ip, lb.ReasonConntrack)
			want("from another source", packet.AppendIPIP(nil, other, tunnelTo4, ip), lb.ReasonTunnelRefused)
			want("from another source, in UDP", packet.AppendGUE(nil, netip.MustParseAddr("2001:db8::1"), tunnelTo6, 4000, ip), lb.ReasonTunnelRefused)
			want("to another address", packet.AppendIPIP(nil, tunnelFrom4, other, ip), lb.ReasonNotService)
			want("cut short", packet.AppendIPIP(nil, tunnelFrom4, tunnelTo4, ip[:len(ip)-1]), lb.ReasonMalformed)
			congested := bytes.Clone(plain)
			congested[1] |= 3
			congested[10], congested[11] = 0, 0
			binary.BigEndian.PutUint16(congested[10:], packet.Checksum(congested[:20], 0))
			want("congested, and the flow does not know ECN", congested, lb.ReasonTunnelCongested)
			apply(&lb.Decap{Addresses: netlab.Prefixes("198.18.8.1/32"), From: netlab.Prefixes("198.18.7.2/32")})
			want("another source is allowed", packet.AppendIPIP(nil, other, tunnelTo4, ip), lb.ReasonConntrack)
			want("the former one is not", plain, lb.ReasonTunnelRefused)
			apply(nil)
			want("no tunnel ends here any more", plain, lb.ReasonNotService)
			if got, want := fmt.Sprint(d.Counters().Decapsulated), fmt.Sprintf("{{2 %d} {1 %d}}", 2*(14+20+len(ip)), 14+40+8+len(ip)); got != want {
				t.Errorf("counted %s, want %s", got, want)
			}
		})
	}
}

// The tunnels that end here are those of the configuration in force after a restart, too.
func TestRootTunnelsAreTakenOver(t *testing.T) {
	t.Parallel()
	p := newPinned(t, "ebtun", attach.HookTCX)
	const spec = `limits: {flows: 64, fragments: 64}
services: []
`
	for i, c := range []struct {
		decap string
		want  int
	}{{"decap: {addresses: [10.1.0.1], from: [10.2.0.0/24, 10.3.0.0/24]}\n", 3}, {"decap: {addresses: [10.1.0.1], from: [10.2.0.0/24]}\n", 2}, {"", 0}} {
		d := p.open(c.decap + spec) // a process of its own for each
		if d.restored != (i > 0) {
			t.Errorf("step %d: restored %v", i, d.restored)
		}
		active := d.state.active & 1
		if n, on := len(d.state.generations[active].clients), d.tables.Control.Tunnels>>active&1; n != c.want || on != uint32(min(n, 1)) {
			t.Errorf("step %d: %d prefixes are in force, want %d; tunnels end here: %d", i, n, c.want, on)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
