package snat_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/snat"
)

// Each number of a scenario is taken at its bounds, and refused under its own key beyond them.
func TestBounds(t *testing.T) {
	day, ms, second := int64(24*time.Hour), int64(time.Millisecond), int64(time.Second)
	stage := func(kind snat.Kind, set func(*snat.StageSpec, int64)) func(*snat.Scenario, int64) {
		return func(s *snat.Scenario, n int64) {
			p := snat.StageSpec{Kind: kind}
			set(&p, n)
			s.Path = []snat.StageSpec{p}
		}
	}
	ports := func(p *snat.StageSpec, n int64) { p.Ports = int(n) }
	ips := func(p *snat.StageSpec, n int64) { p.IPs = int(n) }
	span := func(n int64) *time.Duration { d := time.Duration(n); return &d }
	for _, c := range []struct {
		key       string
		set       func(*snat.Scenario, int64)
		good, bad []int64
	}{
		{"nodes", func(s *snat.Scenario, n int64) { s.Nodes = int(n) }, []int64{1, snat.MaxNodes}, []int64{-1, snat.MaxNodes + 1}},
		{"replicas", func(s *snat.Scenario, n int64) { s.Replicas = int(n) }, []int64{1, snat.MaxReplicas}, []int64{-1, snat.MaxReplicas + 1}},
		{"connections", func(s *snat.Scenario, n int64) { s.Connections = n }, []int64{1, snat.MaxConnections}, []int64{-1, snat.MaxConnections + 1}},
		{"destinations", func(s *snat.Scenario, n int64) { s.Destinations = int(n) }, []int64{1, snat.MaxDestinations}, []int64{-1, snat.MaxDestinations + 1}},
		{"destination_ips", func(s *snat.Scenario, n int64) { s.Destinations, s.DestinationIPs = 7, int(n) }, []int64{1, 7}, []int64{-1, 8}},
		{"max_nodes", func(s *snat.Scenario, n int64) { s.Nodes, s.MaxNodes = 7, int(n) }, []int64{0, 7, snat.MaxNodes}, []int64{-1, 6, snat.MaxNodes + 1}},
		{"surge_nodes", func(s *snat.Scenario, n int64) { s.SurgeNodes = int(n) }, []int64{0, snat.MaxNodes}, []int64{-1, snat.MaxNodes + 1}},
		{"path", func(s *snat.Scenario, n int64) {
			s.Path = make([]snat.StageSpec, n)
			for i := range s.Path {
				s.Path[i].Kind = snat.Files
			}
		}, []int64{1, snat.MaxStages}, []int64{0, snat.MaxStages + 1}},
		{"path[0].ips", stage(snat.AzureLB, ips), []int64{1, snat.MaxIPs}, []int64{-1, snat.MaxIPs + 1}},
		{"path[0].ips", stage(snat.AzureNAT, ips), []int64{1, 16}, []int64{-1, 17}},
		{"path[0].ips", stage(snat.AWSNAT, ips), []int64{1, 8}, []int64{-1, 9}},
		{"path[0].ips", stage(snat.AWSRegional, ips), []int64{1, 32}, []int64{-1, 33}},
		{"path[0].zones", stage(snat.AWSRegional, func(p *snat.StageSpec, n int64) { p.Zones = int(n) }), []int64{1, 16}, []int64{-1, 17}},
		{"path[0].zones", stage(snat.AWSNAT, func(p *snat.StageSpec, n int64) { p.Zones = int(n) }), []int64{0}, []int64{1}},
		{"path[0].ports", stage(snat.AzureLB, ports), []int64{0, 8, 64000}, []int64{-8, 7, 9, 64008, 65536}},
		{"path[0].ports", stage(snat.Ephemeral, ports), []int64{1, 65535}, []int64{-1, 65536}},
		{"path[0].ports", stage(snat.Masquerade, ports), []int64{1, 65535}, []int64{-1, 65536, 65537}},
		{"path[0].ports", stage(snat.MasqueradeLB, ports), []int64{1, 65535}, []int64{-1, 65536}},
		{"path[0].ports", stage(snat.GCPNAT, ports), []int64{1, 32768}, []int64{-1, 32769, 65536}},
		{"path[0].max_ports", stage(snat.GCPNAT, func(p *snat.StageSpec, n int64) { p.MaxPorts = int(n) }), []int64{0, 32, 64, 65536}, []int64{-1, 16, 33, 65537, 131072}},
		{"path[0].max_ports", stage(snat.GCPNAT, func(p *snat.StageSpec, n int64) { p.Ports, p.MaxPorts = int(n), 128 }), []int64{32, 64, 128}, []int64{16, 31, 33, 256}},
		{"path[0].rule_ports[1]", stage(snat.AzureLB, func(p *snat.StageSpec, n int64) { p.RulePorts = []int{80, int(n)} }), []int64{1, 65535}, []int64{0, 65536}},
		{"path[0].limit", stage(snat.Files, func(p *snat.StageSpec, n int64) { p.Limit = n }), []int64{1, 1 << 40}, []int64{-1, 1<<40 + 1}},
		{"path[0].limit", stage(snat.Memory, func(p *snat.StageSpec, n int64) { p.Limit = n }), []int64{1, 1 << 40}, []int64{-1, 0, 1<<40 + 1}},
		{"path[0].bytes_per_connection", stage(snat.Memory, func(p *snat.StageSpec, n int64) { p.Limit, p.PerConnection = 1, n }), []int64{1, 1 << 30}, []int64{-1, 1<<30 + 1}},
		{"path[0].hold_fin", stage(snat.AzureNAT, func(p *snat.StageSpec, n int64) { p.HoldFIN = span(n) }), []int64{0, 30 * day}, []int64{-1, 30*day + 1}},
		{"path[0].hold_rst", stage(snat.AzureNAT, func(p *snat.StageSpec, n int64) { p.HoldRST = span(n) }), []int64{0, 30 * day}, []int64{-1, 30*day + 1}},
		{"path[0].idle_timeout", stage(snat.AzureNAT, func(p *snat.StageSpec, n int64) { p.Idle = span(n) }), []int64{0, 30 * day}, []int64{-1, 30*day + 1}},
		{"path[0].accept_pause", stage(snat.AcceptQueue, func(p *snat.StageSpec, n int64) { p.Pause = time.Duration(n) }), []int64{1, 30 * day}, []int64{-1, 30*day + 1}},
		{"path[0].grow_delay", stage(snat.GCPNAT, func(p *snat.StageSpec, n int64) { p.Grow = time.Duration(n) }), []int64{1, 30 * day}, []int64{-1, 30*day + 1}},
		{"path[0].ports", func(s *snat.Scenario, n int64) { s.Nodes, s.Path = int(n), one(snat.AzureLB) }, []int64{1000}, []int64{1001}},
		{"expect", func(s *snat.Scenario, n int64) { s.Expect = &n }, []int64{0, 1 << 40}, []int64{-1, 1<<40 + 1}},
		{"expect_nodes", func(s *snat.Scenario, n int64) { s.ExpectNodes = &n }, []int64{0, 1 << 40}, []int64{-1, 1<<40 + 1}},
		{"tolerance", func(s *snat.Scenario, n int64) { s.Tolerance = float64(n) / 100 }, []int64{0, 100}, []int64{-1, 101}},
		{"traffic.rate", func(s *snat.Scenario, n int64) { s.Traffic.Rate = float64(n) }, []int64{1, 1e8}, []int64{-1, 1e8 + 1}},
		{"traffic.burst", func(s *snat.Scenario, n int64) {
			s.Traffic.Burst, s.Traffic.BurstEvery = int(n), time.Second
			s.Traffic.Policy, s.Traffic.Lifetime = snat.Open, time.Second
		}, []int64{0, 10_000_000}, []int64{-1, 10_000_001}},
		{"traffic.burst_every", func(s *snat.Scenario, n int64) {
			s.Traffic.Burst, s.Traffic.BurstEvery = 1, time.Duration(n)
			s.Traffic.Policy, s.Traffic.Lifetime = snat.Open, time.Second
		}, []int64{ms}, []int64{0, ms - 1}},
		{"traffic.rst", func(s *snat.Scenario, n int64) { s.Traffic.RST = float64(n) / 100 }, []int64{0, 100}, []int64{-1, 101}},
		{"traffic.rst", func(s *snat.Scenario, n int64) { s.Traffic.Abandoned = float64(n) / 100 }, []int64{0, 100}, []int64{-1, 101}},
		{"traffic.rst", func(s *snat.Scenario, n int64) { s.Traffic.RST, s.Traffic.Abandoned = 0.5, float64(n)/100 }, []int64{50}, []int64{51}},
		{"traffic.duration", func(s *snat.Scenario, n int64) { s.Traffic.Duration = time.Duration(n) }, []int64{second, 366 * day}, []int64{-1, second - 1, 366*day + 1}},
		{"traffic.lifetime", func(s *snat.Scenario, n int64) { s.Traffic.Lifetime = time.Duration(n) }, []int64{0, 366 * day}, []int64{-1, 366*day + 1}},
		{"traffic.heartbeat", func(s *snat.Scenario, n int64) { s.Traffic.Heartbeat = time.Duration(n) }, []int64{second, day}, []int64{-1, second - 1, day + 1}},
		{"traffic.validate", func(s *snat.Scenario, n int64) { s.Traffic.Validate = time.Duration(n) }, []int64{second, day}, []int64{-1, second - 1, day + 1}},
		{"scenarios", nil, []int64{1, snat.MaxScenarios}, []int64{0, snat.MaxScenarios + 1}},
	} {
		refused := func(n int64) string {
			s := snat.Scenario{Path: one(snat.Files)}
			file := snat.File{Scenarios: []snat.Scenario{s}}
			if c.set == nil {
				file.Scenarios = make([]snat.Scenario, n)
				for i := range file.Scenarios {
					file.Scenarios[i] = s
				}
			} else {
				c.set(&file.Scenarios[0], n)
			}
			err := file.Validate()
			if err == nil {
				return ""
			}
			var wrong *keyerror.Error
			if !errors.As(err, &wrong) || !strings.Contains(wrong.Err.Error(), "; ") {
				t.Fatalf("no key or no remedy in %v", err)
			}
			return strings.TrimPrefix(wrong.Key, "scenarios[0].")
		}
		for _, n := range c.good {
			if at := refused(n); at != "" {
				t.Errorf("%s: %d is refused at %s", c.key, n, at)
			}
		}
		for _, n := range c.bad {
			if at := refused(n); at != c.key {
				t.Errorf("%s: %d is refused at %q", c.key, n, at)
			}
		}
	}
}

// Words of a scenario that are not known, and numbers that are none, are refused under their own key.
func TestUnknownWords(t *testing.T) {
	for key, change := range map[string]func(*snat.Scenario){
		"":                func(s *snat.Scenario) { s.Path[0].Side = "server" },
		"path[0].side":    func(s *snat.Scenario) { s.Path[0].Side = "middle" },
		"path[0].kind":    func(s *snat.Scenario) { s.Path[0].Kind = "wire" },
		"protocol":        func(s *snat.Scenario) { s.Protocol = "sctp" },
		"traffic.policy":  func(s *snat.Scenario) { s.Traffic.Policy = "closed" },
		"traffic.spread":  func(s *snat.Scenario) { s.Traffic.Spread = "even" },
		"traffic.balance": func(s *snat.Scenario) { s.Traffic.Balance = "hash" },
		"traffic.rate":    func(s *snat.Scenario) { s.Traffic.Rate = math.NaN() },
		"traffic.rst":     func(s *snat.Scenario) { s.Traffic.RST = math.NaN() },
	} {
		s := snat.Scenario{Path: one(snat.Files)}.WithDefaults()
		change(&s)
		got := ""
		var wrong *keyerror.Error
		if errors.As(s.Validate(), &wrong) {
			got = wrong.Key
		}
		if got != key {
			t.Errorf("%s: refused at %q", key, got)
		}
	}
}

// Numbers are written in groups of three.
func TestGroup(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 64512: "64,512", 100000: "100,000", 1234567: "1,234,567", -1: "-1", -999: "-999", -1000: "-1,000", -123456: "-123,456"} {
		if got := snat.Group(n); got != want {
			t.Errorf("%d is written %s", n, got)
		}
	}
	grouped := regexp.MustCompile(`^-?\d{1,3}(,\d{3})*$`)
	for n := int64(-1); n > -1<<60; n = n*3 - 1 {
		if got := snat.Group(n); !grouped.MatchString(got) || strings.ReplaceAll(got, ",", "") != fmt.Sprint(n) {
			t.Errorf("%d is written %s", n, got)
		}
	}
}
