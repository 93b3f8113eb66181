package coap

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

// The command shows what a running node knows: as a table, and as JSON that the public type reads without a rest.
func TestClusterShow(t *testing.T) {
	clitest.TakesSeconds(t)
	a := clitest.FreeAddresses(t, 4)
	one := member(t, "node 1", 1, a[0], a[1], a[3])
	two := member(t, "node 2", 2, a[2], a[3], a[1])
	awaitNode(one, 2, a[3])
	awaitNode(two, 1, a[1])
	session := newOldSession(t, a[0])
	session.through(t, a[2])
	session.ask(t)

	text := clitest.WantWeir(t, 0, "coap", "cluster", "show", "--admin", "unix:"+one.Socket)
	for _, want := range []string{"node 1 at coaps://" + a[0] + ", 1 session\n", "1   " + a[1], "2   " + a[3], "self", "up", "secured", "BAD MAC"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var view v1.CoAPClusterView
	clitest.Must(t, clitest.ReadStrictly([]byte(clitest.WantWeir(t, 0, "coap", "cluster", "show", "--json", "--admin", "unix:"+two.Socket)), &view))
	if len(view.Nodes) != 1 || view.Nodes[0].ID != 2 || len(view.Nodes[0].Members) != 2 || view.Nodes[0].Counters.Forwarded == 0 || view.Nodes[0].Counters.SentBackwarded == 0 {
		out, _ := json.Marshal(view)
		t.Errorf("%s", out)
	}
}

// A server outside of a cluster says so, and what to do.
func TestClusterShowWithoutCluster(t *testing.T) {
	p := clitest.Start(t, "server", "coap", "server", "--no-supervisor", "--dtls", clitest.FreeAddresses(t, 1)[0])
	if text := clitest.WantWeir(t, 1, "coap", "cluster", "show", "--admin", "unix:"+p.Socket); !strings.Contains(text, "--dtls-cluster") {
		t.Error(text)
	}
}
