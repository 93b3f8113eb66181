package gateway_test

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
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

// TestCoturnClientOverStreams has coturn's client relay data over every stream-like transport and both address families, by
// channels and by indications, to an echo and between its own clients.
func TestCoturnClientOverStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	netlabtest.Tools(t, "turnutils_uclient")
	for _, transport := range []struct {
		protocol gateway.Protocol
		flags    string
	}{{gateway.TCP, "-t"}, {gateway.TLS, "-t -S"}, {gateway.DTLS, "-S"}} {
		for _, address := range []string{"127.0.0.1", "::1"} {
			t.Run(fmt.Sprintf("%s %s", transport.protocol, address), func(t *testing.T) {
				t.Parallel() // they pace themselves
				port, peer := netlabtest.UDPPort(t), peerPort(t, address)
				g := start(t, streamConfig(transport.protocol, address, port), gateway.Options{Workers: 2})
				common := transport.flags + " -u user1 -w passwd1 -L " + address
				if address == "::1" {
					common += " -x"
				}
				var all sync.WaitGroup
				for _, flags := range []string{
					fmt.Sprintf("-e %s -r %d -n 20 -m 3 -z 5 -c", address, peer),         // channels
					fmt.Sprintf("-s -e %s -r %d -n 20 -m 3 -z 5 -c", address, peer),      // indications
					fmt.Sprintf("-e %s -r %d -n 20 -m 2 -z 5 -l 1100 -c", address, peer), // long
					"-y -n 20 -m 4 -z 5 -c", // from relay to relay
					fmt.Sprintf("-D -e %s -r %d -n 20 -m 2 -z 5 -l 101", address, peer), // padded
				} {
					all.Go(func() { uclient(t, port, address, common+" "+flags) })
				}
				all.Wait()
				if transport.protocol != gateway.DTLS { // this client says no goodbye there
					netlabtest.Eventually(t, "every connection and its allocation ends", func() bool {
						s := g.Stats()
						return s.Totals.Allocations == 0 && s.Listeners[0].Connections == 0
					})
				}
				s := g.Stats() // its handshakes of TLS 1.0 and 1.1 and DTLS 1.0 must fail: it tries all versions by chance
				if s.Totals.Opened == 0 || s.Reasons["stream_not_turn"]+s.Reasons["client_slow"]+s.Reasons["dtls_malformed"] != 0 {
					t.Errorf("counted %v", s.Reasons)
				}
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
		t.Errorf("turnutils_uclient %s: %v\n%s", strings.Join(args, " "), err, out)
		return
	}
	last := found[len(found)-1]
	sent, _ := strconv.Atoi(string(last[1]))
	received, _ := strconv.Atoi(string(last[2]))
	if sent == 0 || sent != received {
		t.Errorf("turnutils_uclient %s: %d of %d messages came back\n%s", strings.Join(args, " "), received, sent, out)
	}
}
