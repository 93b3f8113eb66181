package snat_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/snat"
)

// Azure's default: the table per frontend, at most 1,024 a node (the vendor's own example is 100 VMs).
func TestDefaultAllocation(t *testing.T) {
	for _, c := range []struct{ nodes, ips, want int }{
		{1, 1, 1024},
		{50, 1, 1024},
		{51, 1, 512},
		{100, 1, 512},
		{100, 2, 1024},
		{100, 3, 1024},
		{101, 1, 256},
		{200, 1, 256},
		{201, 1, 128},
		{400, 1, 128},
		{401, 1, 64},
		{800, 1, 64},
		{801, 1, 32},
		{1000, 1, 32},
		{1000, 16, 512},
	} {
		p := snat.Scenario{Nodes: c.nodes, Replicas: c.nodes, Path: []snat.StageSpec{{Kind: snat.AzureLB, IPs: c.ips}}}.WithDefaults().Plan()
		if p.PerNode != int64(c.want) || p.Holds != int64(c.want*c.nodes) {
			t.Errorf("%d nodes, %d addresses: %d per node, %d in all, want %d", c.nodes, c.ips, p.PerNode, p.Holds, c.want)
		}
	}
}

func TestNodesPossible(t *testing.T) {
	for _, c := range []struct {
		spec snat.StageSpec
		want int64
	}{
		{snat.StageSpec{Kind: snat.AzureLB, Ports: 8000}, 8},
		{snat.StageSpec{Kind: snat.AzureLB, Ports: 8000, IPs: 2}, 16},
		{snat.StageSpec{Kind: snat.AzureLB, Ports: 64000}, 1},
		{snat.StageSpec{Kind: snat.AzureLB, Ports: 1024}, 62},
		// 80 and 81 lie in one block of 8: 64,000 - 16 are left
		{snat.StageSpec{Kind: snat.AzureLB, Ports: 8000, RulePorts: []int{80, 81, 443}}, 7},
		{snat.StageSpec{Kind: snat.AzureLB, Ports: 16, RulePorts: []int{80, 81, 443}}, 3999},
		{snat.StageSpec{Kind: snat.GCPNAT}, 1008},
		{snat.StageSpec{Kind: snat.GCPNAT, IPs: 2}, 2016},
		{snat.StageSpec{Kind: snat.GCPNAT, Ports: 4096}, 15},
		{snat.StageSpec{Kind: snat.GCPNAT, Ports: 50}, 1008}, // 64
		{snat.StageSpec{Kind: snat.GCPNAT, Ports: 4097}, 7},  // 8,192
		{snat.StageSpec{Kind: snat.GCPNAT, Ports: 32768}, 1},
		{snat.StageSpec{Kind: snat.AzureNAT}, 0},
	} {
		if p := (snat.Scenario{Path: []snat.StageSpec{c.spec}}).WithDefaults().Plan(); p.NodesPossible != c.want {
			t.Errorf("%+v: %d nodes, want %d", c.spec, p.NodesPossible, c.want)
		}
	}
	s := snat.Scenario{Nodes: 9, Replicas: 9, Connections: 100, Path: []snat.StageSpec{{Kind: snat.AzureLB, Ports: 8000}}}
	if p := s.WithDefaults().Plan(); p.Fits || p.Holds != 800 || !strings.Contains(p.Why, "only 8 of 9 nodes") {
		t.Errorf("%+v", p)
	}
}

func TestVendorCeilings(t *testing.T) {
	const all = 2_500_000
	for _, c := range []struct {
		spec         snat.StageSpec
		destinations int
		want         int64
	}{
		{snat.StageSpec{Kind: snat.AzureNAT}, 1, 50_000},
		{snat.StageSpec{Kind: snat.AzureNAT, IPs: 16}, 1, 800_000},
		{snat.StageSpec{Kind: snat.AzureNAT, IPs: 16}, 4, 2_000_000},
		{snat.StageSpec{Kind: snat.AWSNAT}, 1, 55_000},
		{snat.StageSpec{Kind: snat.AWSNAT, IPs: 8}, 1, 440_000},
		{snat.StageSpec{Kind: snat.AWSNAT}, 3, 165_000},
		{snat.StageSpec{Kind: snat.AWSRegional}, 1, 55_000},
		{snat.StageSpec{Kind: snat.AWSRegional, IPs: 2, Zones: 3}, 1, 330_000},
		{snat.StageSpec{Kind: snat.AWSRegional, IPs: 32}, 1, 1_760_000},
		{snat.StageSpec{Kind: snat.GCPNAT, Ports: 50}, 1, 64},
		{snat.StageSpec{Kind: snat.GCPNAT}, 1, 64},
		{snat.StageSpec{Kind: snat.GCPNAT}, 3, 192},
		{snat.StageSpec{Kind: snat.GCPNAT, EndpointIndependent: true}, 3, 64},
		{snat.StageSpec{Kind: snat.GCPNAT, MaxPorts: 65_536, IPs: 2}, 1, 65_536},
		{snat.StageSpec{Kind: snat.GCPNAT, MaxPorts: 65_536}, 1, 32_768}, // 64,512 is no power of two
		{snat.StageSpec{Kind: snat.Masquerade}, 1, 64_512},
		{snat.StageSpec{Kind: snat.Masquerade}, 2, 129_024},
		{snat.StageSpec{Kind: snat.MasqueradeLB}, 2, 64_512},
		{snat.StageSpec{Kind: snat.Conntrack}, 1, 262_144},
		{snat.StageSpec{Kind: snat.VMFlows}, 1, 500_000},
		{snat.StageSpec{Kind: snat.Memory, Limit: 3_800_000}, 1, 1000},
		{snat.StageSpec{Kind: snat.Ephemeral}, 1, 28_232},
		{snat.StageSpec{Kind: snat.Ephemeral, IPs: 3}, 2, 6 * 28_232},
		{snat.StageSpec{Kind: snat.Files, Limit: 20_000}, 9, 20_000},
		{snat.StageSpec{Kind: snat.DNATLB}, 1, all},
	} {
		s := snat.Scenario{Connections: all, Destinations: c.destinations, Path: []snat.StageSpec{c.spec}}.WithDefaults()
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		if p := s.Plan(); p.Holds != c.want || p.Fits != (c.want == all) || !p.Fits && p.Remedy == "" {
			t.Errorf("%+v to %d: holds %d (fits %v, remedy %q), want %d", c.spec, c.destinations, p.Holds, p.Fits, p.Remedy, c.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	lb := func(nodes, most, surge int, p snat.StageSpec) snat.Scenario {
		p.Kind = snat.AzureLB
		return snat.Scenario{Nodes: nodes, MaxNodes: most, SurgeNodes: surge, Replicas: nodes, Connections: 10, Path: []snat.StageSpec{p}}
	}
	for _, c := range []struct {
		s    snat.Scenario
		want string // empty: none
	}{
		{lb(44, 0, 0, snat.StageSpec{}), ""},
		{lb(45, 0, 0, snat.StageSpec{}), "near the pool step at 50"},
		{lb(45, 0, 0, snat.StageSpec{IPs: 2}), ""}, // 2 × 512 is 1,024 still
		{lb(10, 60, 0, snat.StageSpec{}), "at 60 nodes (with max_nodes and surge_nodes) every node has 512 ports instead of 1,024"},
		{lb(50, 50, 1, snat.StageSpec{}), "at 51 nodes"},
		{lb(8, 0, 1, snat.StageSpec{Ports: 8000}), "9 nodes (with max_nodes and surge_nodes) are more than the 8"},
		{lb(2, 0, 0, snat.StageSpec{Ports: 8000, IPs: 2}), "2 addresses add nodes (16 instead of 8), not ports: a node keeps 8,000"},
		{lb(2, 0, 0, snat.StageSpec{Ports: 8000, RulePorts: []int{80, 443}}), "the ports of 2 rules take 16 ports in blocks of 8: 7 nodes instead of 8"},
		{lb(2, 0, 0, snat.StageSpec{Ports: 8000}), ""},
		{lb(7, 0, 1, snat.StageSpec{Ports: 8000}), ""}, // all eight nodes that it has ports for
		{lb(1000, 0, 0, snat.StageSpec{IPs: 16}), "near the pool step at 1000"},
		{lb(1000, 0, 1, snat.StageSpec{IPs: 16}), "1001 nodes (with max_nodes and surge_nodes) are more than the default allocation's 1000"},
	} {
		got := strings.Join(c.s.WithDefaults().Plan().Warnings, "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%d nodes up to %d and %d: %q, want %q", c.s.Nodes, c.s.MaxNodes, c.s.SurgeNodes, got, c.want)
		}
	}
	for _, c := range []struct {
		spec snat.StageSpec
		want string
	}{
		{snat.StageSpec{Kind: snat.AWSNAT, IPs: 2}, ""},
		{snat.StageSpec{Kind: snat.AWSNAT, IPs: 3}, "3 addresses are more than the 2 that AWS gives a gateway by default"},
		{snat.StageSpec{Kind: snat.GCPNAT, Ports: 64}, ""},
		{snat.StageSpec{Kind: snat.GCPNAT, Ports: 50}, "Cloud NAT rounds 50 ports per VM up to 64"},
		{snat.StageSpec{Kind: snat.Files, Limit: 12}, ""},
		{snat.StageSpec{Kind: snat.Files, Limit: 11}, "files of a client process: 91 % used"},
		{snat.StageSpec{Kind: snat.Files, Limit: 10}, "files of a client process: 100 % used"},
		{snat.StageSpec{Kind: snat.Files, Limit: 9}, ""}, // what does not fit is no warning
	} {
		got := strings.Join(snat.Scenario{Connections: 10, Path: []snat.StageSpec{c.spec}}.WithDefaults().Plan().Warnings, "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.spec, got, c.want)
		}
	}
	for surge, want := range map[int]int{6: 0, 7: 1} { // 8 nodes have 8,064 of 64,512 ports each
		s := snat.Scenario{Nodes: 1, SurgeNodes: surge, Connections: 10, Path: []snat.StageSpec{{Kind: snat.GCPNAT, Ports: 8192}}}
		if p := s.WithDefaults().Plan(); len(p.Warnings) != want {
			t.Errorf("%d more nodes: %q", surge, p.Warnings)
		}
	}
	if p := (snat.Scenario{Path: []snat.StageSpec{{Kind: snat.AcceptQueue, Limit: 1000}}, Traffic: snat.Traffic{Rate: 1000}}).WithDefaults().Plan(); len(p.Warnings) != 0 {
		t.Errorf("a queue that just holds what comes: %q", p.Warnings)
	}
	s := snat.Scenario{Path: []snat.StageSpec{{Kind: snat.AcceptQueue, Limit: 128}}, Traffic: snat.Traffic{Rate: 1000}}
	if p := s.WithDefaults().Plan(); !p.Fits || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "1000 connections arrive during accept_pause, it holds 128") {
		t.Errorf("%+v", p)
	}
}

// Random paths: the plan is the maximum flow of the network drawn out in full, no stage carries more than it has, more
// of anything never holds less, and what is said to break first does.
func TestPlanIsTheMinimumCut(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	random := rand.New(rand.NewPCG(4, 2))
	short, simulated := 0, 0
	for range 400 {
		s := randomScenario(random).WithDefaults()
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		p := s.Plan()
		if flow := snat.MaxFlow(s); flow != p.Holds {
			t.Fatalf("%+v:\nplan %d, maximum flow %d", s, p.Holds, flow)
		}
		worst := 0.0
		for _, st := range p.Stages {
			if !st.Transient && p.Holds > st.Capacity || st.Used > 1 || st.Used < 0 {
				t.Fatalf("%+v:\n%s has %d, the plan %d (%v)", s, st.Name, st.Capacity, p.Holds, st.Used)
			}
			if !st.Transient {
				worst = max(worst, st.Pressure)
			}
		}
		if (worst > 1) != (p.Holds < p.Demand) || p.Whole > p.Holds || p.WholeReplicas > int64(s.Replicas) {
			t.Fatalf("%+v:\npressure %v, holds %d of %d, whole %d", s, worst, p.Holds, p.Demand, p.Whole)
		}
		if p.Holds < p.Demand {
			short++
			at := slices.IndexFunc(p.Stages, func(u snat.StageUse) bool { return u.Name == p.First })
			if p.Stages[at].Pressure != worst {
				t.Fatalf("%+v:\nfirst is %s", s, p.First)
			}
		}
		if p.Demand < 60_000 && simulated < 60 {
			simulated++
			agree(t, s, p)
		}
	}
	if short < 50 || short > 350 || simulated < 60 {
		t.Errorf("%d of 400 too small, %d simulated: the scenarios prove little", short, simulated)
	}
}

func randomScenario(r *rand.Rand) snat.Scenario {
	s := snat.Scenario{
		Nodes: 1 + r.IntN(6), Replicas: 1 + r.IntN(12), Connections: 1 + r.Int64N(30_000), Destinations: 1 + r.IntN(3),
		ServerNodes: 1 + r.IntN(3), Servers: 1 + r.IntN(4),
	}
	all := []snat.StageSpec{
		{Kind: snat.Files, Limit: 1 + r.Int64N(40_000)},
		{Kind: snat.Ephemeral, Ports: 1 + r.IntN(60_000)},
		{Kind: snat.Masquerade},
		{Kind: snat.Conntrack, Limit: 1 + r.Int64N(100_000)},
		{Kind: snat.VMFlows, Limit: 1 + r.Int64N(200_000)},
		{Kind: snat.AzureLB, IPs: 1 + r.IntN(3)},
		{Kind: snat.AzureLB, IPs: 1 + r.IntN(2), Ports: 8 * (1 + r.IntN(4000))},
		{Kind: snat.AzureNAT, IPs: 1 + r.IntN(4)},
		{Kind: snat.AWSNAT, IPs: 1 + r.IntN(4)},
		{Kind: snat.AWSRegional, IPs: 1 + r.IntN(4), Zones: r.IntN(4)},
		{Kind: snat.GCPNAT, Ports: 64 + r.IntN(30_000)},
		{Kind: snat.DNATLB},
		{Kind: snat.MasqueradeLB},
		{Kind: snat.Memory, Side: "server", Limit: 3800 * (1 + r.Int64N(100_000))},
		{Kind: snat.Files, Side: "server", Limit: 1 + r.Int64N(80_000)},
		{Kind: snat.AcceptQueue},
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	s.Path = all[:1+r.IntN(4)]
	return s
}

// More addresses, ports, nodes, destinations or servers never hold less, nor sustain fewer new connections per second.
func TestPlanIsMonotone(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	for range 300 {
		s := randomScenario(random)
		s.Traffic.RST, s.Traffic.Lifetime = random.Float64(), time.Duration(random.IntN(100))*time.Second
		before := s.WithDefaults().Plan()
		grown := s
		grown.Path = slices.Clone(s.Path)
		at := random.IntN(len(grown.Path))
		what := random.IntN(5)
		switch p := &grown.Path[at]; what {
		case 0:
			p.IPs = max(p.IPs, 1) + 1
		case 1:
			if p.Ports > 0 && p.Kind == snat.Ephemeral {
				p.Ports = min(p.Ports+8, 65_535)
			}
		case 2:
			grown.Destinations++
		case 3:
			grown.Servers++
		case 4:
			grown.ServerNodes++
		}
		grown = grown.WithDefaults()
		if grown.Validate() != nil {
			continue
		}
		if after := grown.Plan(); after.Holds < before.Holds || after.Ceiling < before.Ceiling || after.Fits && after.NewPerSecond > 0 && after.NewPerSecond < before.NewPerSecond*(1-1e-9) {
			t.Fatalf("%+v holds %d, %.2f/s\nmore of %d at %d: %d, %.2f/s", s, before.Holds, before.NewPerSecond, what, at, after.Holds, after.NewPerSecond)
		}
		if before.Holds > before.Ceiling {
			t.Fatalf("%+v: %+v", s, before)
		}
	}
}

// Azure gives a node more ports with manual allocation, and fewer nodes ports at the same time.
func TestMorePortsPerNodeMeanFewerNodes(t *testing.T) {
	last, lastNodes := int64(0), int64(1<<40)
	for ports := 8; ports <= 64_000; ports += 8 {
		p := snat.Scenario{Connections: 100_000, Path: []snat.StageSpec{{Kind: snat.AzureLB, Ports: ports}}}.WithDefaults().Plan()
		if p.Holds <= last || p.NodesPossible > lastNodes || p.NodesPossible*int64(ports) > 64_000 || (p.NodesPossible+1)*int64(ports) <= 64_000 {
			t.Fatalf("%d ports: holds %d, %d nodes", ports, p.Holds, p.NodesPossible)
		}
		last, lastNodes = p.Holds, p.NodesPossible
	}
}

func TestRulesAreDatedAndComplete(t *testing.T) {
	vendors := map[string]int{}
	for _, r := range snat.Rules() {
		vendors[r.Vendor]++
		if r.Rule == "" || r.Unit == "" || r.Title == "" || len(r.Date) != 10 || r.Basis == "documented" && !strings.HasPrefix(r.URL, "https://") {
			t.Errorf("%+v", r)
		}
	}
	for _, v := range []string{"Azure Load Balancer", "Azure NAT gateway", "AWS NAT gateway", "GCP Cloud NAT", "Linux"} {
		if vendors[v] < 3 {
			t.Errorf("%s: %d rules", v, vendors[v])
		}
	}
}
