package coap

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const testSecret = "the secret of the cluster"

// member starts a node that searches for others at addresses.
func member(t *testing.T, name string, id int, public, management string, group ...string) *clitest.Process {
	t.Helper()
	return clitest.Start(t, name, "coap", "server", "--no-supervisor", "--workers", "1", "--dtls-cluster", fmt.Sprintf("%s;%s;%d", public, management, id),
		"--dtls-cluster-group", strings.Join(group, ","), "--dtls-cluster-group-security", testSecret)
}

// awaitNode waits until p knows the node id at an address, with a session.
func awaitNode(p *clitest.Process, id uint32, address string) {
	p.T.Helper()
	netlabtest.Eventually(p.T, fmt.Sprintf("%s knows node %d at %s", p.Name, id, address), func() bool {
		for _, n := range nodeStatus(p).Nodes {
			if n.ID != nil && *n.ID == id && n.Management == address && n.State == cluster.Up && n.Secured {
				return true
			}
		}
		return false
	}, func() string { return fmt.Sprintf("%+v", nodeStatus(p).Nodes) })
}

// Nodes as processes find each other; one is killed and comes back at its address, and then at another one; another process takes its
// id. A client's session at the first node is served through the second one each time, and one line says what has happened.
func TestNodesFindEachOther(t *testing.T) {
	clitest.TakesSeconds(t)
	a := clitest.FreeAddresses(t, 8) // public and management of node 1, of node 2, of node 2 at another address, and of another one
	secret := filepath.Join(t.TempDir(), "cluster.key")
	if err := os.WriteFile(secret, []byte(base64.StdEncoding.EncodeToString([]byte(testSecret))+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "node.yaml")
	text := fmt.Sprintf("cluster:\n  nodes: [{id: 1, dtls: %q, management: %q}]\n  group: [%q]\n  security: {file: %q}\n", a[0], a[1], a[3], secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	one := clitest.Start(t, "node 1", "coap", "server", "--no-supervisor", "--workers", "1", "-c", file)
	two := member(t, "node 2", 2, a[2], a[3], a[1])
	awaitNode(one, 2, a[3])
	awaitNode(two, 1, a[1])
	session := newOldSession(t, a[0])
	serves := func(public string) {
		t.Helper()
		session.through(t, public)
		session.ask(t)
	}
	serves(a[2])

	kill := func(p *clitest.Process) {
		if err := p.Cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-p.Ended
	}
	kill(two)
	two = member(t, "node 2 again", 2, a[2], a[3], a[1])
	awaitNode(two, 1, a[1])
	serves(a[2])

	kill(two)
	two = member(t, "node 2 elsewhere", 2, a[4], a[5], a[1])
	awaitNode(one, 2, a[5])
	awaitNode(two, 1, a[1])
	serves(a[4])

	other := member(t, "another node 2", 2, a[6], a[7], a[1])
	netlabtest.Eventually(t, "the duplicate id is reported", func() bool {
		return strings.Contains(one.Out.String(), "two cluster nodes have the same id")
	}, one.Out.String)
	serves(a[4])
	for _, line := range []string{"two cluster nodes have the same id", "cluster node has moved"} {
		if n := strings.Count(one.Out.String(), line); n != 1 {
			t.Errorf("%d lines %q", n, line)
		}
	}
	other.Alive()
	if s := nodeStatus(one).Cluster; s.BadForward+s.BadBackward+s.Malformed != 0 || s.MistakenIDs == 0 {
		t.Errorf("%+v", *s)
	}
}

// Both nodes of a secured cluster are killed while all records of one's sessions come through the other: the supervisors start them
// again, the link is secured again, and no client loses a request or its session.
func TestSecuredClusterSurvivesKills(t *testing.T) {
	clitest.TakesSeconds(t)
	a := clitest.FreeAddresses(t, 5)
	var nodes []*survivor
	for i := range 2 {
		nodes = append(nodes, startSurvivor(t, "coap", "server", "--workers", "1", "--dtls-cluster", clitest.ClusterArgs(a[:4], i), "--dtls-cluster-group-security", testSecret))
	}
	for _, n := range nodes {
		awaitNodesUp(n.Process)
	}
	nat := clitest.Start(t, "nat", "nat", a[4], "--", a[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	steps := []func(){
		func() { nat.Console("add " + a[2]); nat.Console("remove " + a[0]); nat.Console("clear") },
		func() { nodes[0].kill() },
		func() { nodes[1].kill() },
		func() {},
		cancel,
	}
	result, err := client.Bench(ctx, client.BenchConfig{
		URI: "coaps://" + a[4] + "/benchmark?rlen=40", Clients: survivors, Requests: 1 << 30, NoStop: true, LiveEvery: 300 * time.Millisecond, AckTimeout: repeatSoon,
	}, func(s client.Snapshot) {
		if s.Interval.Requests > 0 && len(steps) > 0 { // the load has got over the latest step
			steps[0]()
			steps = steps[1:]
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := result.Stats; s.Lost != 0 || s.LostSessions != 0 || s.Rehandshakes != 0 || s.HandshakeErrors != 0 || s.Handshakes != survivors || s.Failed != 0 {
		t.Errorf("load: %+v", s)
	}
	for i, n := range nodes {
		c := nodeStatus(n.Process).Cluster
		if c.LinkSessions != 1 || c.Malformed+c.Strangers+c.MistakenIDs != 0 {
			t.Errorf("node %d: %+v", i+1, *c)
		}
	}
	t.Logf("%d requests, %d retransmissions, the longest took %v", result.Stats.Requests, result.Stats.Retransmissions, result.RTT.Max())
}

// kill ends the serving process and waits for the next one.
func (s *survivor) kill() {
	s.T.Helper()
	before := s.now().PID
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		s.T.Error(err)
	}
	s.becomes(before)
}
