package nfqueue

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// tierWorld is two balancers between a client and two backends, with a link to hand fragments to each other:
//
//	client 10.61.j.2 ── 10.61.j.1 balancer j 10.62.ij.1 ── 10.62.ij.2 backend i, VIP
//	                              balancer 0 10.64.0.1 ── 10.64.0.2 balancer 1
//
// The client's packets go by either of them, as a router that shares packets out would send them. Mark 101+i routes to
// backend i, mark 201+j to balancer j.
type tierWorld struct {
	world
	paths [2]*Datapath
	wires [2]wire // the client's links
}

// wire is a link of the client, to put packets on.
type wire struct {
	socket, index int
	hardware      [6]byte
}

func tierTopology() netlab.Topology {
	address := netip.MustParseAddr
	everything := map[bool]netip.Prefix{false: netip.MustParsePrefix("0.0.0.0/0"), true: netip.MustParsePrefix("::/0")}
	quiet := []netlab.Sysctl{{Key: "net.ipv4.conf.all.rp_filter", Value: "0"}, {Key: "net.ipv4.conf.default.rp_filter", Value: "0"}}
	t := netlab.Topology{Name: "nfqt", Namespaces: []netlab.Namespace{{Name: "client"}}}
	var balancers [2]netlab.Namespace
	for j := range balancers {
		balancers[j] = netlab.Namespace{Name: fmt.Sprintf("lb%d", j), Forward: true, Sysctls: quiet}
		t.Links = append(t.Links, netlab.Cable(fmt.Sprintf("client eth%[1]d 10.61.%[1]d.2/24 fd61:%[1]d::2/64", j), fmt.Sprintf("lb%[1]d in0 10.61.%[1]d.1/24 fd61:%[1]d::1/64", j)))
	}
	by := func(j, mark int, via4, via6 string) {
		for _, r := range []struct {
			via string
			is6 bool
		}{{via4, false}, {via6, true}} {
			balancers[j].Routes = append(balancers[j].Routes, netlab.Route{To: everything[r.is6], Via: address(r.via), Table: mark})
			balancers[j].Rules = append(balancers[j].Rules, netlab.Rule{IPv6: r.is6, Mark: uint32(mark), Table: mark})
		}
	}
	t.Links = append(t.Links, netlab.Cable("lb0 peer 10.64.0.1/24 fd64::1/64", "lb1 peer 10.64.0.2/24 fd64::2/64"))
	by(0, 202, "10.64.0.2", "fd64::2")
	by(1, 201, "10.64.0.1", "fd64::1")
	for i := range 2 {
		backend := netlab.Namespace{Name: backendName(i), Loopback: netlab.Prefixes(vip4+"/32", vip6+"/128"), Sysctls: quiet}
		for j := range balancers {
			at4, at6 := fmt.Sprintf("10.62.%d.", 10*i+j), fmt.Sprintf("fd62:%d::", 10*i+j)
			t.Links = append(t.Links, netlab.Cable(fmt.Sprintf("lb%d be%d %s1/24 %s1/64", j, i, at4, at6), fmt.Sprintf("%s eth%d %s2/24 %s2/64", backend.Name, j, at4, at6)))
			by(j, firstMark+i, at4+"2", at6+"2")
		}
		t.Namespaces = append(t.Namespaces, backend)
	}
	t.Namespaces = append(t.Namespaces, balancers[:]...)
	return t
}

// newTierWorld builds it; specs are what the two balancers go by.
func newTierWorld(t *testing.T, specs [2]string) *tierWorld {
	t.Helper()
	netlabtest.Root(t)
	netlabtest.Tools(t, "iptables", "ip6tables")
	lab := netlabtest.Up(t, tierTopology())
	w := &tierWorld{world: world{t: t, client: lab.Namespace("client"), news: make(chan struct{}, 1)}}
	for i := range 2 {
		w.backends = append(w.backends, lab.Namespace(backendName(i)))
		w.serve(i)
	}
	for j := range w.paths {
		w.balancer = lab.Namespace(fmt.Sprintf("lb%d", j))
		for command, vip := range map[string]string{"iptables": vip4, "ip6tables": vip6} {
			if out, err := w.balancer.Exec(context.Background(), command, "-w", "-t", "mangle", "-A", "PREROUTING", "-d", vip, "-j", "NFQUEUE", "--queue-num", "0"); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
		}
		if err := w.balancer.Do(func() (err error) { w.d, err = Open(Config{Count: 1}); return err }); err != nil {
			t.Fatal(err)
		}
		w.paths[j] = w.d
		closed := w.d
		t.Cleanup(func() {
			if err := closed.Close(); err != nil {
				t.Error(err)
			}
		})
		w.run(specs[j])
		w.wires[j] = w.openWire(fmt.Sprintf("eth%d", j))
	}
	return w
}

func (w *tierWorld) openWire(name string) (at wire) {
	w.t.Helper()
	var err error
	if _, at.hardware, err = w.balancer.Interface("in0"); err != nil {
		w.t.Fatal(err)
	}
	if at.index, _, err = w.client.Interface(name); err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Do(func() (err error) {
		at.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = unix.Close(at.socket) })
	return at
}

// by puts a packet onto the wire to balancer j.
func (w *tierWorld) by(j int, p []byte) {
	w.injector, w.index, w.hardware = w.wires[j].socket, w.wires[j].index, w.wires[j].hardware
	w.inject(p)
}

// tierSpec is what balancer self goes by; weights are those of the two members.
func tierSpec(self int, weights [2]int) string {
	tier := fmt.Sprintf("tier: {self: lb%d, maglev_size: 401, members: [{name: lb0, mark: 201, weight: %d}, {name: lb1, mark: 202, weight: %d}]}\nlimits:", self, weights[0], weights[1])
	return strings.Replace(worldSpec("conntrack: false", 0, 1), "limits:", tier, 1)
}

// Two balancers get the fragments of each datagram by turns, in any order, and every datagram arrives whole at one backend:
// the one where its flow goes when nothing is fragmented, by either balancer.
func TestRootNFQTier(t *testing.T) {
	w := newTierWorld(t, [2]string{tierSpec(0, [2]int{100, 100}), tierSpec(1, [2]int{100, 100})})
	id := uint32(0)
	families(t, func(t *testing.T, is6 bool) {
		for n := range 12 {
			client, vip := endpoints(is6, uint16(7000+n))
			host := netip.AddrFrom4([4]byte{10, 61, 0, byte(100 + n)}) // the tier goes by addresses
			if is6 {
				host = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x61, 14: 1, 15: byte(n)})
			}
			client = netip.AddrPortFrom(host, client.Port())
			plain := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, Payload: tag(number(is6, 7000+n), 80)}
			owner := w.where("udp", plain.Payload, func() { w.by(n%2, plain.Append(nil)) })
			for _, reversed := range []bool{false, true} {
				id++
				b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, ID: id, Payload: tag(int(id), 6000)}
				pieces := b.Fragments(1400)
				if got := w.where("udp", b.Payload, func() {
					for i := range pieces {
						piece := pieces[i]
						if reversed {
							piece = pieces[len(pieces)-1-i]
						}
						w.by((i+n)%2, piece)
					}
				}); got != owner {
					t.Errorf("%s, reversed %v: at %d instead of %d", client, reversed, got, owner)
				}
			}
		}
	})
	for j, d := range w.paths {
		tier := d.Stats().Tables.Tier
		if tier.Sent == 0 || tier.Unguarded != 0 {
			t.Errorf("balancer %d: %+v", j, tier)
		}
	}
}

// Balancers of which each considers the other responsible hand a fragment over, and back, and no further.
func TestRootNFQTierDisagrees(t *testing.T) {
	w := newTierWorld(t, [2]string{tierSpec(0, [2]int{0, 100}), tierSpec(1, [2]int{100, 0})})
	sent := uint64(0)
	families(t, func(t *testing.T, is6 bool) {
		for n := range 5 {
			client, vip := endpoints(is6, uint16(7100+n))
			b := packet.Build{Src: client, Dst: vip, Proto: flow.ProtoUDP, ID: uint32(number(is6, n) + 1), Payload: tag(number(is6, 100+n), 6000)}
			pieces := b.Fragments(1400)
			w.where("udp", b.Payload, func() {
				sent += uint64(len(pieces))
				for _, piece := range pieces {
					w.by(0, piece)
				}
			})
		}
	})
	// A datagram's first fragment makes the round; those that follow it straight may stay.
	first, second := w.paths[0].Stats(), w.paths[1].Stats()
	if packets := first.Queues[0].Packets; packets > 2*sent {
		t.Errorf("balancer 0 saw %d packets of %d that were sent", packets, sent)
	}
	if packets := second.Queues[0].Packets; packets == 0 || packets > sent {
		t.Errorf("balancer 1 saw %d packets of %d that were sent", packets, sent)
	}
	if first.Tables.Tier.Returned == 0 {
		t.Errorf("nothing came back: %+v", first.Tables.Tier)
	}
}
