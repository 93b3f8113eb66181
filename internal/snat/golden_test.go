package snat_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/testbed/testbedtest"
)

func line(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// each kind of stage with few ports, so that they matter.
func tight() []snat.StageSpec {
	return []snat.StageSpec{
		{Kind: snat.Files, Limit: 700},
		{Kind: snat.Files, Side: "server", Limit: 900},
		{Kind: snat.Ephemeral, Ports: 100, IPs: 2},
		{Kind: snat.Masquerade, Ports: 300},
		{Kind: snat.Conntrack, Limit: 800},
		{Kind: snat.Conntrack, Side: "server", Limit: 900},
		{Kind: snat.VMFlows, Limit: 600},
		{Kind: snat.VMFlows, Side: "server", Limit: 700},
		{Kind: snat.AzureLB},
		{Kind: snat.AzureLB, Ports: 200, IPs: 2, RulePorts: []int{80, 81, 443}},
		{Kind: snat.AzureLB, Ports: 32000},
		{Kind: snat.AzureNAT},
		{Kind: snat.AWSNAT, IPs: 3},
		{Kind: snat.AWSRegional, IPs: 2, Zones: 2},
		{Kind: snat.GCPNAT, Ports: 100},
		{Kind: snat.GCPNAT, Ports: 32000},
		{Kind: snat.GCPNAT, Ports: 128, EndpointIndependent: true},
		{Kind: snat.GCPNAT, MaxPorts: 1024},
		{Kind: snat.DNATLB},
		{Kind: snat.MasqueradeLB, Ports: 300},
		{Kind: snat.Memory, Limit: 3_800_000},
		{Kind: snat.Memory, Side: "server", Limit: 3_800_000},
		{Kind: snat.AcceptQueue, Limit: 10},
	}
}

// What is planned for each kind of stage, alone and before a NAT, for TCP and UDP, and for connections that come and go.
func TestPlansAreAsBefore(t *testing.T) {
	var text strings.Builder
	for number, spec := range tight() {
		for _, protocol := range []snat.Protocol{snat.TCP, snat.UDP} {
			if protocol == snat.UDP && spec.Kind == snat.AcceptQueue {
				continue
			}
			s := snat.Scenario{Protocol: protocol, Nodes: 3, Replicas: 7, Connections: 450, Destinations: 4, DestinationIPs: 2, ServerNodes: 2, Servers: 3, SurgeNodes: 2}
			open := s
			open.Traffic = snat.Traffic{Policy: snat.Open, Rate: 30, Lifetime: 90 * time.Second, Burst: 40, BurstEvery: 20 * time.Second, Abandoned: 0.2}
			if protocol == snat.TCP {
				open.Traffic.RST = 0.3
			}
			s.Name, s.Path = fmt.Sprintf("%s %d %s, kept", protocol, number, spec.Kind), []snat.StageSpec{spec}
			open.Name, open.Path = fmt.Sprintf("%s %d %s before a NAT, open", protocol, number, spec.Kind), []snat.StageSpec{spec, {Kind: snat.AzureNAT, IPs: 2}}
			for _, s := range []snat.Scenario{s, open} {
				s = s.WithDefaults()
				if err := s.Validate(); err != nil {
					t.Fatalf("%s: %v", s.Name, err)
				}
				plan := s.Plan()
				uses := plan.Stages
				plan.Stages = nil
				fmt.Fprintf(&text, "%s\n\t%s\n", line(t, plan), line(t, uses[0]))
			}
		}
	}
	testbedtest.Golden(t, "plans.golden", text.String())
}

// The same seed gives the same run, also in the next release: counts of what happened in small paths of each kind.
func TestRunsAreAsBefore(t *testing.T) {
	var text strings.Builder
	run := func(name string, s snat.Scenario) {
		s.Name = name
		r := simulate(t, s)
		if r.Opened != r.Closed+r.Evicted+r.Last && s.Traffic.Policy != snat.Original {
			t.Errorf("%s: %d opened, %d closed, %d left", name, r.Opened, r.Closed, r.Last)
		}
		r.Series = v1.SNATSeries{Held: every(r.Series.Held), Waiting: every(r.Series.Waiting), Tried: every(r.Series.Tried), Failed: every(r.Series.Failed)}
		r.Mean = math.Round(r.Mean) // a sum, whose last digits may differ between processors
		for i := range r.Stages {
			r.Stages[i].Active, r.Stages[i].Busy = every(r.Stages[i].Active), every(r.Stages[i].Busy)
		}
		fmt.Fprintln(&text, line(t, r))
	}
	for number, spec := range tight() {
		if spec.Kind == snat.DNATLB {
			continue // holds nothing up
		}
		for _, protocol := range []snat.Protocol{snat.TCP, snat.UDP} {
			if protocol == snat.UDP && spec.Kind == snat.AcceptQueue {
				continue
			}
			s := snat.Scenario{Protocol: protocol, Nodes: 2, Replicas: 5, Connections: 300, Destinations: 3, DestinationIPs: 2, ServerNodes: 2, Servers: 3, Path: []snat.StageSpec{spec}}
			s.Traffic = snat.Traffic{Rate: 20, Duration: 3 * time.Minute, Lifetime: 30 * time.Second, Abandoned: 0.1}
			name := fmt.Sprintf("%s %d %s", protocol, number, spec.Kind)
			if protocol == snat.TCP {
				s.Traffic.RST = 0.2
			}
			run(name+", keep", s)
			s.Traffic.Policy, s.Traffic.Rate, s.Traffic.Spread, s.Traffic.Balance = snat.Open, 40, "fixed", "random"
			s.Traffic.Burst, s.Traffic.BurstEvery = 300, 50*time.Second
			run(name+", open", s)
			if protocol == snat.TCP && len(s.Path) == 1 && (spec.Kind == snat.Files || spec.Kind == snat.AzureLB || spec.Kind == snat.Conntrack) {
				s.Traffic = snat.Traffic{Policy: snat.Original, Rate: 50, Duration: 20 * time.Minute}
				run(name+", original", s)
			}
		}
	}
	testbedtest.Golden(t, "runs.golden", text.String())
}

// every keeps a few of many readings.
func every(all []int64) (some []int64) {
	for i := 0; i < len(all); i += 149 {
		some = append(some, all[i])
	}
	return some
}

// What connections need, for each way to translate them, each figure given and to be found; and how cells compare.
func TestSizesAndCellsAreAsBefore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var text strings.Builder
	for _, spec := range []snat.StageSpec{
		{Kind: snat.AzureLB},
		{Kind: snat.AzureLB, IPs: 3},
		{Kind: snat.AzureLB, Ports: snat.Manual},
		{Kind: snat.AzureLB, Ports: 8000},
		{Kind: snat.AzureNAT},
		{Kind: snat.AWSNAT},
		{Kind: snat.AWSRegional, Zones: 2},
		{Kind: snat.GCPNAT},
		{Kind: snat.GCPNAT, Ports: snat.Manual},
		{Kind: snat.GCPNAT, MaxPorts: snat.Dynamic},
		{Kind: snat.Masquerade},
		{Kind: snat.Ephemeral},
	} {
		for _, need := range []snat.Need{
			{Connections: 1},
			{Connections: 70_001},
			{Connections: 900_001, Rate: 900},
			{Connections: 70_001, Nodes: 7},
			{Connections: 70_001, Replicas: 5},
			{Connections: 20_000, Rate: 5000, Nodes: 3},
			{Connections: 70_001, IPs: 1},
			{Connections: 900_001, IPs: 3, Nodes: 900},
			{Connections: 200_000, Nodes: 3, Replicas: 4, IPs: 2},
		} {
			size := sized(t, spec, need)
			size.Plan, size.NewPerSecond = snat.Plan{}, math.Round(size.NewPerSecond)
			fmt.Fprintf(&text, "%+v: possible %t, %d nodes, %d replicas, %d to %d ports, %d addresses, holds %d, %g/s, breaks first %q; %s: %s\n", need, size.Possible, size.Nodes, size.Replicas, size.Ports, size.MaxPorts,
				size.IPs, size.Ceiling, size.NewPerSecond, size.First, size.Way, size.Why)
		}
	}
	number := func(n int64) *int64 { return &n }
	base := snat.Scenario{Nodes: 2, Replicas: 4, Connections: 5000, Path: []snat.StageSpec{{Kind: snat.AzureLB, Ports: 8000}}}
	for _, c := range []struct {
		name   string
		change func(*snat.Scenario)
	}{
		{"open", func(*snat.Scenario) {}},
		{"agrees", func(s *snat.Scenario) { s.Expect = number(16_000) }},
		{"within", func(s *snat.Scenario) { s.Expect, s.Tolerance = number(16_100), 0.01 }},
		{"beyond", func(s *snat.Scenario) { s.Expect, s.Tolerance = number(16_200), 0.01 }},
		{"noted", func(s *snat.Scenario) { s.Expect, s.Note = number(15_999), "measured twice" }},
		{"whole replicas", func(s *snat.Scenario) { s.Expect, s.Kind = number(10_000), snat.Ceiling }},
		{"no whole replica", func(s *snat.Scenario) { s.Connections, s.Expect, s.Kind = 9000, number(16_000), snat.Ceiling }},
		{"nodes", func(s *snat.Scenario) { s.ExpectNodes = number(8) }},
		{"other nodes", func(s *snat.Scenario) { s.ExpectNodes = number(9) }},
		{"moves", func(s *snat.Scenario) { s.Expect, s.Kind, s.Note = number(12_500), snat.Transient, "seen once" }},
		{"moves not so far", func(s *snat.Scenario) { s.Expect, s.Kind = number(16_001), snat.Transient }},
		{"moves near it", func(s *snat.Scenario) {
			s.Expect, s.Kind, s.Tolerance, s.Traffic.Lifetime = number(15_000), snat.Transient, 0.2, time.Second
		}},
	} {
		s := base
		s.Name = c.name
		c.change(&s)
		cell, err := s.WithDefaults().Cell(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cell.Plan = snat.Plan{}
		if cell.Seen != nil {
			cell.Seen.Mean, cell.Seen.Near = math.Round(cell.Seen.Mean), math.Round(1000*cell.Seen.Near)/1000
		}
		fmt.Fprintf(&text, "%s: predicted %d, exact %d, nodes %d, %s: %s; %s\n", cell.Scenario, cell.Predicted, cell.Exact, cell.Nodes, cell.Status, cell.Reason, line(t, cell.Seen))
	}
	testbedtest.Golden(t, "sizes.golden", text.String())
}
