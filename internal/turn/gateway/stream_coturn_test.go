package gateway_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// streamConfig is a gateway with one listener of a protocol on a loopback address.
func streamConfig(protocol gateway.Protocol, address string, port uint16) gateway.Config {
	c := config(address, port)
	c.Listeners[0].Name, c.Listeners[0].Protocol = string(protocol), protocol
	c.Listeners[0].SelfSigned = protocol.Secure()
	c.Clusters = append(c.Clusters, gateway.ClusterConfig{Name: "local-tcp", Protocol: gateway.TCP, Endpoints: []string{"127.0.0.0/8", "::1"}})
	c.Listeners[0].Routes = append(c.Listeners[0].Routes, "local-tcp")
	return c
}

// TestUclient has coturn's client relay data over every stream-like transport, both address families, Send indications and
// channels, to coturn's peer and between its own clients.
func TestUclient(t *testing.T) {
	netlabtest.Tools(t, "turnutils_uclient", "turnutils_peer")
	for _, transport := range []struct {
		protocol gateway.Protocol
		flags    string
	}{{gateway.UDP, ""}, {gateway.TCP, "-t"}, {gateway.TLS, "-t -S"}, {gateway.DTLS, "-S"}} {
		for _, address := range []string{"127.0.0.1", "::1"} {
			t.Run(fmt.Sprintf("%s %s", transport.protocol, address), func(t *testing.T) {
				port := netlabtest.UDPPort(t)
				g := start(t, streamConfig(transport.protocol, address, port), gateway.Options{Workers: 2})
				peer := startPeer(t, address)
				common := transport.flags + " -u user1 -w passwd1 -L " + address
				if address == "::1" {
					common += " -x"
				}
				for name, flags := range map[string]string{
					"channels":           fmt.Sprintf("-e %s -r %d -n 50 -m 3 -z 2 -c", address, peer),
					"send indications":   fmt.Sprintf("-s -e %s -r %d -n 50 -m 3 -z 2 -c", address, peer),
					"long messages":      fmt.Sprintf("-e %s -r %d -n 20 -m 2 -z 2 -l 1100 -c", address, peer),
					"between clients":    "-y -n 50 -m 4 -z 2",
					"with RTCP":          fmt.Sprintf("-e %s -r %d -n 20 -m 2 -z 2", address, peer),
					"a message a packet": fmt.Sprintf("-D -e %s -r %d -n 20 -m 2 -z 2 -c -l 101", address, peer),
				} {
					t.Run(name, func(t *testing.T) { uclient(t, port, address, common+" "+flags) })
				}
				eventually(t, "every allocation ends", func() bool { return g.Stats().Totals.Allocations == 0 })
			})
		}
	}
}

var uclientTotals = regexp.MustCompile(`tot_send_msgs=(\d+), tot_recv_msgs=(\d+)`)

// uclient runs coturn's client and fails unless every message came back.
func uclient(t *testing.T, port uint16, server, flags string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := append(strings.Fields(flags), "-p", strconv.Itoa(int(port)), server)
	out, err := exec.CommandContext(ctx, "turnutils_uclient", args...).CombinedOutput()
	found := uclientTotals.FindAllSubmatch(out, -1)
	if err != nil || len(found) == 0 {
		t.Fatalf("turnutils_uclient %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	last := found[len(found)-1]
	sent, _ := strconv.Atoi(string(last[1]))
	received, _ := strconv.Atoi(string(last[2]))
	if sent == 0 || sent != received {
		t.Fatalf("turnutils_uclient %s: %d of %d messages came back\n%s", strings.Join(args, " "), received, sent, out)
	}
	t.Logf("%d messages", sent)
}

// startPeer runs coturn's echo peer and returns its port.
func startPeer(t *testing.T, address string) uint16 {
	t.Helper()
	port := netlabtest.UDPPort(t)
	cmd := exec.Command("turnutils_peer", "-L", address, "-p", strconv.Itoa(int(port)))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	probe := listenUDP(t, address)
	buf := make([]byte, 64)
	eventually(t, "the peer answers", func() bool {
		_, _ = probe.WriteToUDPAddrPort([]byte("hello"), netip.AddrPortFrom(netip.MustParseAddr(address), port))
		_ = probe.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := probe.Read(buf)
		return err == nil
	})
	return port
}
