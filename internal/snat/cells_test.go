package snat_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/snat"
)

func load(t *testing.T, path string) []snat.Scenario {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, _, err := config.Decode[snat.File](path, text)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Validate(); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for i := range file.Scenarios {
		file.Scenarios[i] = file.Scenarios[i].WithDefaults()
	}
	return file.Scenarios
}

// The source document's figures, and what is predicted where it has none. The table here is the document once more, so
// that a change of the example cannot hide a change of the planner.
func TestEveryCellOfTheSourceDocument(t *testing.T) {
	const open = -1
	want := []struct {
		table, name  string
		says         int64 // the document
		exact, whole int64 // the plan
		nodes        int64
		status       string
	}{
		{"Default AKS setup", "1 node, 1 replica", 1024, 1024, 0, 1000, snat.Agrees},
		{"Outbound ports 8,000", "1 node, 1 replica", 8000, 8000, 0, 8, snat.Agrees},
		{"Outbound ports 8,000 and 2 public addresses", "1 node, 1 replica", 8000, 8000, 0, 16, snat.Agrees},
		{"Outbound ports 8,000 and 2 public addresses", "1 node, 2 replicas", open, 8000, 0, 16, snat.Predicted},
		{"Outbound ports 8,000 and 2 public addresses", "2 nodes, 2 replicas", 12500, 16000, 0, 16, snat.Moves},
		{"Outbound ports 8,000 and 2 public addresses", "2 nodes, 4 replicas", open, 16000, 0, 16, snat.Predicted},
		{"NAT gateway, prefix of 16 addresses", "1 node, 1 replica", 10000, 10000, 10000, 0, snat.Agrees},
		{"NAT gateway, prefix of 16 addresses", "1 node, 5 replicas", 50000, 50000, 50000, 0, snat.Agrees},
		{"NAT gateway, prefix of 16 addresses", "1 node, 10 replicas", 100000, 100000, 100000, 0, snat.Agrees},
		{"NAT gateway, prefix of 16 addresses", "1 node, 10 replicas, node masquerades", open, 64512, 60000, 0, snat.Predicted},
		{"Server in a virtual machine", "public IP", 60000, 64512, 60000, 0, snat.Agrees},
		{"Server in a virtual machine", "1 NIC and load balancer", open, 64512, 60000, 0, snat.Predicted},
		{"Server in a virtual machine", "2 NICs and load balancer", open, 64512, 60000, 0, snat.Predicted},
		{"Server in a virtual machine", "2 NICs, clients dial both", open, 129024, 120000, 0, snat.Predicted},
		{"Server in AKS, pod IP", "1 replica", 10000, 10000, 10000, 0, snat.Agrees},
		{"Server in AKS, pod IP", "10 replicas", 100000, 100000, 100000, 0, snat.Agrees},
		{"Server in AKS, internal load balancer", "1 replica", 10000, 10000, 10000, 0, snat.Agrees},
		{"Server in AKS, internal load balancer", "10 replicas", 60000, 64512, 60000, 0, snat.Agrees},
		{"Server in AKS, external load balancer", "1 replica", 10000, 10000, 10000, 0, snat.Agrees},
		{"Server in AKS, external load balancer", "10 replicas", 60000, 64512, 60000, 0, snat.Agrees},
	}
	scenarios := load(t, filepath.Join("..", "..", "examples", "snat", "source-document.yaml"))
	if len(scenarios) != len(want) {
		t.Fatalf("%d scenarios, want %d", len(scenarios), len(want))
	}
	for i, s := range scenarios {
		w := want[i]
		t.Run(w.table+"/"+w.name, func(t *testing.T) {
			cell, err := s.Cell(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			says := int64(open)
			if s.Expect != nil {
				says = *s.Expect
			}
			if s.Table != w.table || s.Name != w.name || says != w.says {
				t.Fatalf("the file says %s, %s: %d", s.Table, s.Name, says)
			}
			if cell.Exact != w.exact || cell.Plan.Whole != w.whole || cell.Nodes != w.nodes || cell.Status != w.status || cell.Reason == "" {
				t.Errorf("exact %d, whole %d, nodes %d, %s (%s)\nwant %+v", cell.Exact, cell.Plan.Whole, cell.Nodes, cell.Status, cell.Reason, w)
			}
			agree(t, s, cell.Plan)
		})
	}
}

// agree holds the simulator's steady maximum against the plan: clients that keep trying get just what the plan says.
func agree(t *testing.T, s snat.Scenario, plan snat.Plan) {
	t.Helper()
	s.Traffic = snat.Traffic{}
	run, err := snat.Simulate(t.Context(), s.WithDefaults(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if run.Peak != plan.Holds || run.Last != plan.Holds || run.Lowest != plan.Holds {
		t.Errorf("simulated: peak %d, last %d, lowest %d; planned %d", run.Peak, run.Last, run.Lowest, plan.Holds)
	}
}
