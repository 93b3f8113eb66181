package coap

import (
	"net"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
)

// Clusters of two Weir nodes and a node that is built on Scandium's managed cluster connector, which find each other by pings: with a
// secured link and a MAC, with a secured link alone, and with none. Each serves its sessions through the others, both ways.
func TestClusterWithManagedCalifornium(t *testing.T) {
	clitest.TakesSeconds(t)
	buildCalifornium(t, 3)
	clusters := []struct {
		name, secret, mac, pings string
		args                     []string
		addresses                []string // public and management of nodes 1 and 2 (Weir), of node 3 (Californium)
		weir                     []*coaptest.Server
	}{
		{name: "mac", secret: testSecret, mac: "mac", pings: "6", args: []string{"--dtls-cluster-group-security", testSecret}},
		{name: "no mac", secret: testSecret, mac: "no-mac", pings: "6", args: []string{"--dtls-cluster-group-security", testSecret, "--no-dtls-cluster-mac"}},
		{name: "unsecured", secret: "-", mac: "no-mac", pings: "5"},
	}
	all := clitest.FreeAddresses(t, 6*len(clusters))
	var californium []string // one process has the nodes of all three: its start takes longer than what they do
	for i := range clusters {
		c := &clusters[i]
		c.addresses = all[6*i : 6*i+6]
		if i > 0 {
			californium = append(californium, "AND")
		}
		_, public, _ := net.SplitHostPort(c.addresses[4])
		_, management, _ := net.SplitHostPort(c.addresses[5])
		californium = append(californium, public, management, "3", "--group", c.addresses[1]+","+c.addresses[3], c.pings, c.secret, c.mac)
	}
	startJava(t, 3, "weir.Node", californium...)
	for i := range clusters {
		c := &clusters[i]
		for n := range 2 {
			node := c.addresses[2*n] + ";" + c.addresses[2*n+1] + ";" + string(rune('1'+n))
			others := c.addresses[3-2*n] + "," + c.addresses[5]
			c.weir = append(c.weir, coaptest.Start(t, 1, append([]string{"--dtls-cluster", node, "--dtls-cluster-group", others}, c.args...)...))
		}
	}
	client := startClusterClient(t)
	for _, c := range clusters {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range c.weir {
				s.AwaitReady()
			}
			checkManaged(t, client, c.addresses, c.weir, c.secret != "-")
		})
	}
}

// checkManaged makes sessions at nodes 1 and 3 of a cluster, requests in each through other nodes, and checks what the nodes have counted.
func checkManaged(t *testing.T, client *peer, addresses []string, weir []*coaptest.Server, secured bool) {
	t.Helper()
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
		if n, want := s.Metric("weir_coap_cluster_link_sessions"), map[bool]float64{true: 2, false: 0}[secured]; n != want {
			t.Errorf("node %d has %v sessions on the link, want %v", i+1, n, want)
		}
	}
	for name, least := range map[string]float64{"forwarded": 3, "backwarded": 6, "processed_forwarded": 6, "sent_backwarded": 3} {
		if n := weir[0].Metric("weir_coap_cluster_" + name + "_total"); n < least {
			t.Errorf("%s: %v frames, want at least %v", name, n, least)
		}
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
