package ebpf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/decap"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// TestRootJumboFrames carries 9000-byte frames in every mode.
func TestRootJumboFrames(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		for _, mode := range []string{"nat", "l2dsr", "l3dsr"} {
			t.Run(hook.String()+"/"+mode, func(t *testing.T) {
				t.Parallel()
				topology := netlab.DSR()
				topology.Name = "ebjumbo" + hook.String()
				topology.Links[0].MTU, topology.Links[1].MTU = 9000, 9100
				lab := netlabtest.Up(t, topology)
				backend := lab.Namespace("zone1")
				b := start(t, lab.Namespace("gateway"), Config{Interfaces: []string{"veth0", "veth2"}, Hook: hook},
					"services:\n- name: echo\n  mode: "+mode+vips+"  backends:\n  - {name: a, address: \"10.2.0.2\", address2: \"2001:db8::2:2\"}\n")
				switch mode {
				case "nat":
					serve(t, backend, ":80")
				case "l3dsr":
					openTunnels(t, backend, decap.Config{Interface: "veth3", Hook: decap.XDP, From: netlab.Prefixes("10.2.0.1/32", "2001:db8::2:1/128")})
					fallthrough
				default:
					serveVIPs(t, backend)
				}
				for i, vip := range bothVIPs {
					sendTCP(t, lab.Namespace("zone0"), vip, 1<<20)
					for _, size := range []int{1400, 4000, 8000, 9000 - []int{28, 48}[i]} {
						sendUDP(t, lab.Namespace("zone0"), "", vip, size)
					}
				}
				wantNone(t, b, "too_big")
				wantNone(t, b, "malformed")
			})
		}
	}
}

// TestRootZonDefectFailedNeighbour stops a backend from receiving until the kernel's entry
// for it has failed; once it receives again, packets reach it without any help.
func TestRootZonDefectFailedNeighbour(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) { failedNeighbour(t, hook) })
	}
}

func failedNeighbour(t *testing.T, hook attach.Hook) {
	t.Parallel()
	lab := netlabtest.Up(t, twoClients("ebfail"+hook.String(), true))
	backend, gateway := lab.Namespace("zone1"), lab.Namespace("gateway")
	serve(t, backend, ":8080")
	b := start(t, gateway, Config{Interfaces: threeVeths, Hook: hook}, "services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
	sendUDP(t, lab.Namespace("client1"), "", "10.0.0.1:80", 100)
	run := func(host *netlab.Host, args ...string) {
		t.Helper()
		if _, err := host.Exec(t.Context(), args[0], args[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	run(backend, "ip", "link", "set", "eth0", "arp", "off")
	run(gateway, "ip", "neigh", "replace", "10.2.0.2", "dev", "veth3", "nud", "failed")
	// While it receives nothing, packets do not reach it and say why.
	ebpftest.Do(t, lab.Namespace("client1"), func() error {
		c, err := net.Dial("udp", "10.0.0.1:80")
		if err != nil {
			return err
		}
		defer c.Close()
		for end := time.Now().Add(10 * time.Second); counted(t, b, "send_failed")+counted(t, b, "no_neighbour") == 0; {
			if time.Now().After(end) {
				return fmt.Errorf("nothing counted")
			}
			if _, err := c.Write([]byte("lost")); err != nil {
				continue // refused, as the kernel reports the unreachable host
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	run(backend, "ip", "link", "set", "eth0", "arp", "on")
	sendUDP(t, lab.Namespace("client1"), "", "10.0.0.1:80", 100)
	sendTCP(t, lab.Namespace("client2"), "10.0.0.1:80", 1<<16)
}

// TestRootZonDefectTooBigBehindTag sends through VLAN 7: packets are steered and rewritten
// behind the tag and keep it, both ways; too large ones are answered behind it.
func TestRootZonDefectTooBigBehindTag(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) { taggedFrames(t, hook) })
	}
}

func taggedFrames(t *testing.T, hook attach.Hook) {
	t.Parallel()
	topology := twoClients("ebvlan"+hook.String(), true)
	topology.Links[2].MTU = 1400
	lab := netlabtest.Up(t, topology)
	client, backend := openWire(t, lab.Namespace("client1"), "eth0"), openWire(t, lab.Namespace("zone1"), "eth0")
	gateway := lab.Namespace("gateway")
	_, front, err := gateway.Interface("veth1")
	if err != nil {
		t.Fatal(err)
	}
	_, back, err := gateway.Interface("veth3")
	if err != nil {
		t.Fatal(err)
	}
	start(t, gateway, Config{Interfaces: threeVeths, Hook: hook}, "services:\n- name: echo\n  mode: nat\n"+vips[1:]+oneBackend[1:])
	// The way back to the client is known, as after any exchange with it.
	for _, to := range []string{"10.1.1.2", "2001:db8:1:1::2"} {
		if _, err := gateway.Exec(t.Context(), "ping", "-c1", "-W10", to); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ client, vip, backend string }{
		{"10.1.1.2:4000", "10.0.0.1:80", "10.2.0.2:8080"},
		{"[2001:db8:1:1::2]:4000", "[2001:db8::1]:80", "[2001:db8::2:2]:8080"},
	} {
		from, vip, to := netip.MustParseAddrPort(c.client), netip.MustParseAddrPort(c.vip), netip.MustParseAddrPort(c.backend)
		is := func(src, dst netip.AddrPort) func(p *packet.Packet) bool {
			return func(p *packet.Packet) bool { return p.Key == flow.NewKey(src, dst, flow.ProtoUDP) }
		}
		request := packet.Build{Src: from, Dst: vip, Proto: flow.ProtoUDP, Payload: []byte("tagged"), VLANs: []uint16{7}}
		client.send(request.AppendFrame(nil, front, client.mac, request.Append(nil)))
		p, tag := backend.receive("request", is(from, to))
		if tag != 7 || string(p.PayloadBytes()) != "tagged" || !p.Verify() || p.TTL != 63 {
			t.Errorf("%s: the backend got tag %d, TTL %d, %q, checksum right: %v", c.vip, tag, p.TTL, p.PayloadBytes(), p.Verify())
		}
		reply := packet.Build{Src: to, Dst: from, Proto: flow.ProtoUDP, Payload: []byte("back"), VLANs: []uint16{7}}
		backend.send(reply.AppendFrame(nil, back, backend.mac, reply.Append(nil)))
		p, tag = client.receive("reply", is(vip, from))
		if tag != 7 || string(p.PayloadBytes()) != "back" || !p.Verify() {
			t.Errorf("%s: the client got tag %d, %q, checksum right: %v", c.vip, tag, p.PayloadBytes(), p.Verify())
		}
		request.Payload, request.DontFrag = make([]byte, 1440), true
		client.send(request.AppendFrame(nil, front, client.mac, request.Append(nil)))
		p, tag = client.receive("error", func(p *packet.Packet) bool { return p.Kind == packet.KindICMPError })
		if tag != 7 || !p.Verify() || p.Key != flow.NewKey(vip, from, flow.ProtoUDP) || mtuIn(&p) != 1400 {
			t.Errorf("%s: too big: tag %d, of %s, MTU %d, checksum right: %v", c.vip, tag, p.Key, mtuIn(&p), p.Verify())
		}
	}
}

// mtuIn is what an error of a packet too big says.
func mtuIn(p *packet.Packet) int {
	if p.Version == 4 {
		return int(p.Data[26])<<8 | int(p.Data[27])
	}
	return int(p.Data[46])<<8 | int(p.Data[47])
}

// TestRootShuffledFragments sends datagrams of 30,000 bytes, each in fragments
// out of order, from many flows: each reaches one backend whole, and its answer
// comes back whole.
func TestRootShuffledFragments(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		for _, mode := range []string{"nat", "l2dsr", "l3dsr"} {
			t.Run(hook.String()+"/"+mode, func(t *testing.T) { shuffledFragments(t, hook, mode) })
		}
	}
}

func shuffledFragments(t *testing.T, hook attach.Hook, mode string) {
	t.Parallel()
	topology := segment("ebfrag" + hook.String())
	for i := range topology.Links {
		topology.Links[i].MTU = 1600 // room for the tunnel; a wire has one MTU
	}
	lab := netlabtest.Up(t, topology)
	client, gateway := lab.Namespace("client"), lab.Namespace("gateway")
	for _, zone := range []string{"zone1", "zone2"} {
		host := lab.Namespace(zone)
		if mode == "nat" {
			serve(t, host, ":80")
		} else {
			serveVIPs(t, host)
		}
		if mode == "l3dsr" {
			openTunnels(t, host, decap.Config{Interface: "eth0", Hook: decap.TCX, From: netlab.Prefixes("10.2.0.1/32", "2001:db8::2:1/128")})
		}
	}
	spec := "limits: {held_per_datagram: 32}\nservices:\n- name: echo\n  mode: " + mode + "\n"
	if mode == "nat" { // clients and backends share a wire: replies must come this way
		spec += `  snat: {addresses: ["10.2.0.1", "2001:db8::2:1"]}` + "\n"
	}
	b := start(t, gateway, Config{Interfaces: []string{"eth0"}, Hook: hook}, spec+vips[1:]+segmentBackends)
	w := openWire(t, client, "eth0")
	_, mac, err := gateway.Interface("eth0")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i, vip := range bothVIPs {
		for n := range 8 {
			from := fmt.Sprintf([]string{"10.2.0.2:%d", "[2001:db8::2:2]:%d"}[i], 41000+n)
			c := dialFrom(t, client, "udp", from, vip)
			payload := pattern(30000)
			copy(payload, fmt.Sprint("datagram ", i, n))
			datagram := packet.Build{Src: netip.MustParseAddrPort(from), Dst: netip.MustParseAddrPort(vip), Proto: flow.ProtoUDP, Payload: payload}
			answered := false
			for try := range 10 { // a socket buffer may overflow on a busy machine
				datagram.ID = uint32(1000*i + 100*n + try + 7)
				fragments := datagram.Fragments(1448)
				random.Shuffle(len(fragments), func(a, b int) { fragments[a], fragments[b] = fragments[b], fragments[a] })
				for _, f := range fragments {
					w.send(datagram.AppendFrame(nil, mac, w.mac, f))
				}
				c.SetReadDeadline(time.Now().Add(time.Second))
				got := make([]byte, 1<<16)
				size, err := c.Read(got)
				if err == nil && bytes.Equal(got[:size], payload) {
					answered = true
					break
				}
				if err == nil {
					t.Fatalf("%s: %d bytes came back as %d others", from, len(payload), size)
				}
			}
			if !answered {
				t.Fatalf("%s to %s: no answer", from, vip)
			}
		}
	}
	if counted(t, b, "fragment_early") == 0 {
		t.Error("no fragment came before its first one: nothing was shown")
	}
}
