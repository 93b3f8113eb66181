package coap

import (
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
)

// Clusters of two Weir nodes and a node that is built on Scandium's managed cluster connector, which find each other by pings: with a
// secured link and a MAC, with a secured link alone, and with none. Each serves its sessions through the others, both ways.
func TestClusterWithManagedCalifornium(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3)
	for name, c := range map[string]struct {
		secret, mac, pings string
		args               []string
	}{
		"mac":       {"the secret of the cluster", "mac", "6", []string{"--dtls-cluster-group-security", "the secret of the cluster"}},
		"no mac":    {"the secret of the cluster", "no-mac", "6", []string{"--dtls-cluster-group-security", "the secret of the cluster", "--no-dtls-cluster-mac"}},
		"unsecured": {"-", "no-mac", "5", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addresses := clitest.FreeAddresses(t, 6) // public and management of nodes 1 and 2 (Weir), of node 3 (Californium)
			port := func(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
			startJava(t, 3, "weir.Node", port(addresses[4]), port(addresses[5]), "3", "--group", addresses[1]+","+addresses[3], c.pings, c.secret, c.mac)
			var weir []*coaptest.Server
			for i := range 2 {
				node := addresses[2*i] + ";" + addresses[2*i+1] + ";" + string(rune('1'+i))
				others := addresses[3-2*i] + "," + addresses[5]
				weir = append(weir, coaptest.Start(t, 1, append([]string{"--dtls-cluster", node, "--dtls-cluster-group", others}, c.args...)...))
			}
			for _, s := range weir {
				s.AwaitReady()
			}
			client := startClusterClient(t)
			for _, direction := range []struct{ own, wrong, id string }{
				{addresses[0], addresses[4], "1"}, {addresses[4], addresses[0], "3"}, {addresses[4], addresses[2], "3"}, {addresses[0], addresses[2], "1"},
			} {
				serveThrough(t, client, direction.own, direction.wrong, direction.id)
			}
			for i, s := range weir {
				for _, name := range []string{"dropped_forward", "dropped_backward", "bad_forward", "bad_backward", "strangers", "malformed", "mistaken_ids"} {
					if n := s.Metric("weir_coap_cluster_" + name + "_total"); n != 0 {
						t.Errorf("node %d, %s: %v", i+1, name, n)
					}
				}
				if n, want := s.Metric("weir_coap_cluster_link_sessions"), map[bool]float64{true: 2, false: 0}[c.secret != "-"]; n != want {
					t.Errorf("node %d has %v sessions on the link, want %v", i+1, n, want)
				}
			}
			for name, least := range map[string]float64{"forwarded": 3, "backwarded": 6, "processed_forwarded": 6, "sent_backwarded": 3} {
				if n := weir[0].Metric("weir_coap_cluster_" + name + "_total"); n < least {
					t.Errorf("%s: %v frames, want at least %v", name, n, least)
				}
			}
		})
	}
}

// startClusterClient starts a client with the identity that nodes of the harness know. It has a session with each address that it requests from.
func startClusterClient(t *testing.T) *peer {
	t.Helper()
	return startCalifornium(t, 0, "cali.cluster", ".fornium", "TLS_PSK_WITH_AES_128_CCM_8")
}

// serveThrough makes a session at the node with the id at own, and requests in it through the node at wrong, and back.
func serveThrough(t *testing.T, client *peer, own, wrong, id string) {
	t.Helper()
	nat := newPortNAT(t, own)
	cid := ""
	for move, to := range []string{own, wrong, own, wrong, wrong} {
		if move > 0 {
			nat.redirect(to)
		}
		code, payload := client.do("GET coaps://" + nat.address() + "/mycontext")
		seen := fields(payload)
		if code != "2.05" || seen["node-id"] != id || seen["port"] != nat.port() || seen["peer"] != "cali.cluster" || to == wrong && seen["via"] != "dtls-cid-router" {
			t.Fatalf("move %d of node %s to %s, from port %s: %s\n%s", move, id, to, nat.port(), code, payload)
		}
		if cid != "" && seen["read-cid"] != cid {
			t.Errorf("move %d: read-cid %s, was %s", move, seen["read-cid"], cid)
		}
		cid = seen["read-cid"]
	}
}
