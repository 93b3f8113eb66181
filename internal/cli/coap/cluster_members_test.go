package coap

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
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
