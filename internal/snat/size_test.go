package snat_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/snat"
)

// sized asks what n connections need of one stage behind the replicas' own ports.
func sized(t *testing.T, p snat.StageSpec, need snat.Need) snat.Size {
	t.Helper()
	s := snat.Scenario{Path: []snat.StageSpec{{Kind: snat.Ephemeral}, p}}.WithDefaults()
	s.Path[1].Ports, s.Path[1].MaxPorts = p.Ports, p.MaxPorts
	return s.Size(need)
}

func TestWhatConnectionsNeed(t *testing.T) {
	const manual, dynamic = snat.Manual, snat.Dynamic
	for name, c := range map[string]struct {
		spec              snat.StageSpec
		need              snat.Need
		nodes, ports, ips int
	}{
		"default":                    {snat.StageSpec{Kind: snat.AzureLB}, snat.Need{Connections: 50_000}, 49, 1024, 1},
		"default beyond a step":      {snat.StageSpec{Kind: snat.AzureLB}, snat.Need{Connections: 100_000}, 98, 1024, 2},
		"manual":                     {snat.StageSpec{Kind: snat.AzureLB, Ports: manual}, snat.Need{Connections: 50_000}, 1, 50_000, 1},
		"manual, nodes given":        {snat.StageSpec{Kind: snat.AzureLB, Ports: manual}, snat.Need{Connections: 50_000, Nodes: 20}, 20, 2504, 1},
		"the document's 16 nodes":    {snat.StageSpec{Kind: snat.AzureLB, Ports: 8000}, snat.Need{Connections: 128_000}, 16, 8000, 2},
		"Azure NAT gateway":          {snat.StageSpec{Kind: snat.AzureNAT}, snat.Need{Connections: 50_001}, 1, 0, 2},
		"Azure NAT gateway, rate":    {snat.StageSpec{Kind: snat.AzureNAT}, snat.Need{Connections: 100, Rate: 2000}, 1, 0, 3},
		"AWS NAT gateway":            {snat.StageSpec{Kind: snat.AWSNAT}, snat.Need{Connections: 440_000}, 1, 0, 8},
		"regional, three zones":      {snat.StageSpec{Kind: snat.AWSRegional, Zones: 3}, snat.Need{Connections: 440_000}, 1, 0, 3},
		"Cloud NAT, static":          {snat.StageSpec{Kind: snat.GCPNAT, Ports: manual}, snat.Need{Connections: 70_000, Nodes: 10}, 10, 8192, 2},
		"Cloud NAT, dynamic":         {snat.StageSpec{Kind: snat.GCPNAT, MaxPorts: dynamic}, snat.Need{Connections: 60_000, Nodes: 15}, 15, 32, 1},
		"masquerade":                 {snat.StageSpec{Kind: snat.Masquerade}, snat.Need{Connections: 100_000}, 2, 0, 0},
		"sources of one own machine": {snat.StageSpec{Kind: snat.Ephemeral}, snat.Need{Connections: 60_000, Nodes: 1, Replicas: 1}, 1, 0, 0},
	} {
		got := sized(t, c.spec, c.need)
		if name == "sources of one own machine" { // the first stage has one source only
			if got.Possible || !strings.Contains(got.Why, "28,232") {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if !got.Possible || got.Nodes != c.nodes || got.Ports != c.ports || got.IPs != c.ips || got.Ceiling < c.need.Connections {
			t.Errorf("%s: %d nodes, %d ports, %d addresses (holds %d, possible %v: %s), want %d, %d, %d", name, got.Nodes, got.Ports, got.IPs, got.Ceiling, got.Possible, got.Why, c.nodes, c.ports, c.ips)
		}
	}
	for want, c := range map[string]struct {
		spec snat.StageSpec
		need snat.Need
	}{
		"full at 440,000":                  {snat.StageSpec{Kind: snat.AWSNAT}, snat.Need{Connections: 440_001}},
		"1,024":                            {snat.StageSpec{Kind: snat.AzureLB}, snat.Need{Connections: 10_000, Nodes: 5}},
		"10 nodes":                         {snat.StageSpec{Kind: snat.AzureLB, Ports: 8000}, snat.Need{Connections: 50_000, Nodes: 10, IPs: 1}},
		"20000 new connections/s are more": {snat.StageSpec{Kind: snat.AzureNAT}, snat.Need{Connections: 100, Rate: 20_000}},
	} {
		if got := sized(t, c.spec, c.need); got.Possible || !strings.Contains(got.Why, want) {
			t.Errorf("%+v: possible %v, %q, want %q", c, got.Possible, got.Why, want)
		}
	}
}

// What is found holds what was asked, and one node, port step or address less does not.
func TestSizesAreTheMinimum(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 1))
	specs := []snat.StageSpec{
		{Kind: snat.AzureLB},
		{Kind: snat.AzureLB, Ports: snat.Manual},
		{Kind: snat.AzureNAT},
		{Kind: snat.AWSNAT},
		{Kind: snat.AWSRegional, Zones: 2},
		{Kind: snat.GCPNAT, Ports: snat.Manual},
		{Kind: snat.GCPNAT, MaxPorts: snat.Dynamic},
		{Kind: snat.Masquerade},
	}
	possible := 0
	for range 150 {
		s := snat.Scenario{
			Destinations: 1 + random.IntN(3), SurgeNodes: random.IntN(3), Connections: 1000 + random.Int64N(20_000),
			Path: []snat.StageSpec{{Kind: snat.Ephemeral}}, Traffic: snat.Traffic{Lifetime: time.Duration(random.IntN(100)) * time.Second},
		}
		s = s.WithDefaults()
		spec := specs[random.IntN(len(specs))]
		s.Path = append(s.Path, spec)
		need := snat.Need{Connections: 1 + random.Int64N(400_000), Nodes: random.IntN(2) * random.IntN(60), Rate: float64(random.IntN(2) * random.IntN(2000))}
		got := s.Size(need)
		if !got.Possible {
			continue
		}
		possible++
		if got.Plan.Holds < need.Connections || got.Ceiling < need.Connections || got.Plan.NewPerSecond > 0 && got.Plan.NewPerSecond < need.Rate {
			t.Fatalf("%+v of %+v: %+v", need, s, got)
		}
		less := need
		if got.IPs > 1 {
			less.Nodes, less.IPs = got.Nodes, got.IPs-1
			if again := s.Size(less); again.Possible && again.Ports <= got.Ports {
				t.Fatalf("%+v of %+v: %d addresses do too, not %d", need, s, less.IPs, got.IPs)
			}
		}
		if need.Nodes == 0 && got.Nodes > 1 {
			less = need
			less.Nodes = got.Nodes - 1
			if s.Size(less).Possible {
				t.Fatalf("%+v of %+v: %d nodes do too", need, s, less.Nodes)
			}
		}
	}
	if possible < 75 {
		t.Errorf("%d of 150 possible: they prove little", possible)
	}
}
