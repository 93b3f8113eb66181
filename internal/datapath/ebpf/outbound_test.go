package ebpf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// outboundSpec has one backend that is there, and seven that new flows of
// clients would go to in vain.
func outboundSpec() string {
	var spec strings.Builder
	spec.WriteString("services:\n- name: echo\n  mode: nat\n  outbound: true\n  timeouts: {udp: never}\n" + vips[1:] + oneBackend[1:])
	for i := range 7 {
		fmt.Fprintf(&spec, "  - {name: dead%d, address: \"10.2.0.%d\", address2: \"2001:db8::2:%d\", port: 8080}\n", i, 100+i, 100+i)
	}
	return spec.String()
}

// TestRootOutbound: flows that a backend starts leave with the VIP, in one piece
// or in fragments, and what the client answers or says later comes to that
// backend; also while weir is away, and after it came back.
func TestRootOutbound(t *testing.T) {
	t.Parallel()
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) { outboundFlows(t, hook) })
	}
}

func outboundFlows(t *testing.T, hook attach.Hook) {
	t.Parallel()
	lab := netlabtest.Up(t, twoClients("ebout"+hook.String(), true))
	gateway := lab.Namespace("gateway")
	config := Config{Interfaces: threeVeths, Hook: hook, PinPath: filepath.Join(netlabtest.BPFFS(t), "lb")}
	b := &balancer{t: t, host: gateway}
	stop := b.run(config, outboundSpec())
	backends := []net.PacketConn{listenOn(t, lab.Namespace("zone1"), "10.2.0.2:8080"), listenOn(t, lab.Namespace("zone1"), "[2001:db8::2:2]:8080")}
	open := func(port int) (flows []startedFlow) {
		for i, at := range []string{"10.1.1.2", "2001:db8:1:1::2"} {
			for n := range 4 {
				client := netip.AddrPortFrom(netip.MustParseAddr(at), uint16(port+n))
				flows = append(flows, startedFlow{t, backends[i], listenOn(t, lab.Namespace("client1"), client.String()), client, netip.MustParseAddrPort(bothVIPs[i])})
			}
		}
		return flows
	}
	first := open(5000)
	for i, f := range first {
		f.start(fmt.Sprint("first ", i), []int{100, 4000}[i%2])
		f.answer(fmt.Sprint("answer ", i))
	}
	if n := counted(t, b, "outbound"); n != 8 {
		t.Errorf("%d flows were started, want 8", n)
	}
	stop()
	for i, f := range first { // weir is away
		f.answer(fmt.Sprint("alone ", i))
		f.start(fmt.Sprint("alone ", i), 100)
	}
	stop = b.run(config, outboundSpec())
	if !b.d.restored {
		t.Error("the tables were not taken over")
	}
	for i, f := range first {
		f.start(fmt.Sprint("again ", i), 100)
		f.answer(fmt.Sprint("again ", i))
	}
	for i, f := range open(6000) {
		f.start(fmt.Sprint("second ", i), 100)
		f.answer(fmt.Sprint("second ", i))
	}
	if n := counted(t, b, "outbound"); n != 16 {
		t.Errorf("%d flows were started, want 16", n)
	}
	b.apply(strings.Replace(outboundSpec(), "outbound: true", "outbound: false", 1))
	f := open(7000)[0]
	f.vip = netip.MustParseAddrPort("10.2.0.2:8080") // no program translates it any more
	f.start("untranslated", 100)
	stop()
}

// run opens the data path and runs it until the function that it returns is called.
func (b *balancer) run(config Config, spec string) (stop func()) {
	b.t.Helper()
	ebpftest.Do(b.t, b.host, func() (err error) {
		b.d, err = Open(config)
		return err
	})
	b.apply(spec)
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.d.Run(ctx) }()
	return func() {
		cancel()
		if err := errors.Join(<-ended, b.d.Close()); err != nil {
			b.t.Error(err)
		}
	}
}

func listenOn(t *testing.T, host *netlab.Host, address string) (c net.PacketConn) {
	t.Helper()
	ebpftest.Do(t, host, func() (err error) {
		c, err = net.ListenPacket("udp", address)
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// startedFlow is one of a backend's own.
type startedFlow struct {
	t       *testing.T
	backend net.PacketConn
	socket  net.PacketConn // the client's
	client  netip.AddrPort
	vip     netip.AddrPort
}

// start sends from the backend; the client gets it from the VIP.
func (f startedFlow) start(text string, size int) {
	f.t.Helper()
	f.carry(f.backend, f.client, f.socket, f.vip, append([]byte(text), make([]byte, size)...))
}

// answer sends from the client to the VIP; the backend gets it from the client.
func (f startedFlow) answer(text string) {
	f.t.Helper()
	f.carry(f.socket, f.vip, f.backend, f.client, []byte(text))
}

// carry sends until it came, for datagrams may be lost on a busy machine.
func (f startedFlow) carry(from net.PacketConn, to netip.AddrPort, at net.PacketConn, source netip.AddrPort, data []byte) {
	f.t.Helper()
	b := make([]byte, 65536)
	for range 40 {
		if _, err := from.WriteTo(data, net.UDPAddrFromAddrPort(to)); err != nil {
			f.t.Fatal(err)
		}
		for {
			at.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			n, sender, err := at.ReadFrom(b)
			if err != nil {
				break // lost
			}
			if !bytes.Equal(b[:n], data) {
				continue // sent twice before
			}
			if got := sender.(*net.UDPAddr).AddrPort(); netip.AddrPortFrom(got.Addr().Unmap(), got.Port()) != source {
				f.t.Fatalf("%q came from %s, want %s", data[:min(n, 20)], got, source)
			}
			return
		}
	}
	f.t.Fatalf("%q from %s to %s did not come", data[:min(len(data), 20)], from.LocalAddr(), to)
}
