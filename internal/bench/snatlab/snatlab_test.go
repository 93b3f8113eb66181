package snatlab_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/bench/snatlab"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// asWorker in the environment makes the test binary a worker.
const asWorker = "WEIR_NATRIG_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		if err := tcpscale.RunWorker(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func here() tcpscale.Launcher {
	return tcpscale.Launcher{Command: func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asWorker+"=1")
		return cmd
	}}
}

// The kernel's own NAT, configured to give out ports as a cloud does, lets through what the planner says, to the connection. The
// planner's figures stand here once more. Weir's NAT: TestRootSnatLab in internal/cli/snat.
func TestRootKernelNATMeetsThePlan(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "nft")
	path := func(stages ...snat.StageSpec) []snat.StageSpec { return stages }
	kind := func(k snat.Kind) snat.StageSpec { return snat.StageSpec{Kind: k} }
	for _, c := range []struct {
		want    int
		ceiling string
		s       snat.Scenario
	}{
		{64512, "ports 1024–65535 of one address", snat.Scenario{Name: "masquerade, 66,500 offered", Replicas: 7, Connections: 9500, Path: path(kind(snat.Ephemeral), kind(snat.Masquerade))}},
		{66500, "", snat.Scenario{Name: "NAT gateway of 16 addresses", Replicas: 7, Connections: 9500, Path: path(kind(snat.Ephemeral), snat.StageSpec{Kind: snat.AzureNAT, IPs: 16})}},
		{1024, "default allocation of a node behind Azure", snat.Scenario{Name: "default allocation", Connections: 3000, Path: path(kind(snat.Ephemeral), kind(snat.Masquerade), kind(snat.AzureLB))}},
		{8000, "64000 / 8: ", snat.Scenario{Name: "8,000 ports, 2 replicas", Replicas: 2, Connections: 5000, Path: path(snat.StageSpec{Kind: snat.AzureLB, Ports: 8000, IPs: 2})}},
		{4000, "64000 / 16: ", snat.Scenario{Name: "2,000 ports, 2 nodes", Nodes: 2, Replicas: 2, Connections: 2500, Path: path(snat.StageSpec{Kind: snat.AzureLB, Ports: 2000, IPs: 2})}},
		{4100, "source ports: 4100 for each of 1 pairs", snat.Scenario{Name: "ephemeral ports", Connections: 4200, Path: path(snat.StageSpec{Kind: snat.Ephemeral, Ports: 4100})}},
		{4000, "", snat.Scenario{Name: "kube-proxy behind a balancer", Connections: 4500, Path: path(kind(snat.DNATLB), snat.StageSpec{Kind: snat.MasqueradeLB, Ports: 4000})}},
		{6000, "", snat.Scenario{Name: "two destinations", Destinations: 2, Connections: 7000, Path: path(snat.StageSpec{Kind: snat.Masquerade, Ports: 3000})}},
		{2048, "", snat.Scenario{Name: "Cloud NAT", Nodes: 2, Replicas: 2, Connections: 1500, Path: path(snat.StageSpec{Kind: snat.GCPNAT, Ports: 1024})}},
	} {
		t.Run(c.s.Name, func(t *testing.T) {
			t.Parallel()
			meets(t, c.s, c.want, c.ceiling)
		})
	}
}

func meets(t *testing.T, s snat.Scenario, want int, ceiling string) {
	t.Helper()
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	result, err := snatlab.Run(t.Context(), snatlab.Config{Scenarios: []snat.Scenario{s}, NATs: []string{snatlab.Kernel}, Launcher: here()})
	if err != nil {
		t.Fatal(err)
	}
	c := result.Cells[0]
	if c.Kernel.SNATMeasured == nil {
		t.Fatal(c.Kernel.NotRun)
	}
	if c.Plan.Holds != int64(want) || c.Kernel.Held != want || c.Kernel.Server != want || !c.Agree || result.Differ != 0 {
		t.Errorf("planned %d, the kernel let %d through, the server counts %d; want %d: %s (%v)", c.Plan.Holds, c.Kernel.Held, c.Kernel.Server, want, c.Reason, c.Kernel.Failures)
	}
	if (ceiling == "" && want == int(c.Plan.Demand) && c.Kernel.Ceiling != "") || !strings.Contains(c.Kernel.Ceiling, ceiling) {
		t.Errorf("the tester calls %d %q (%d), want %q", want, c.Kernel.Ceiling, c.Kernel.CeilingAt, ceiling)
	}
	sum := 0
	for _, n := range c.Kernel.Replicas {
		sum += n
	}
	if sum != want {
		t.Errorf("replicas %v hold %d together, want %d", c.Kernel.Replicas, sum, want)
	}
	t.Logf("filled in %.1f s, measured in %.1f s: %v", c.Kernel.Seconds, result.Took, c.Kernel.Failures)
}

// What cannot be built is not run, and says why; it is no difference.
func TestRootWhatIsNotBuilt(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "nft")
	var scenarios []snat.Scenario
	for _, s := range []snat.Scenario{
		{Name: "files", Path: []snat.StageSpec{{Kind: snat.Files, Limit: 1000}}},
		{Name: "dynamic", Path: []snat.StageSpec{{Kind: snat.GCPNAT, Ports: 64, MaxPorts: 128}}},
		{Name: "two clouds", Path: []snat.StageSpec{{Kind: snat.AzureLB}, {Kind: snat.AzureNAT}}},
		{Name: "servers", Servers: 2, Path: []snat.StageSpec{{Kind: snat.Ephemeral}}},
		{Name: "nodes", Nodes: 17, Path: []snat.StageSpec{{Kind: snat.Ephemeral}}},
		{Name: "conntrack", Connections: 90_000_000, Path: []snat.StageSpec{{Kind: snat.AzureLB}}},
		{Name: "udp", Protocol: snat.UDP, Path: []snat.StageSpec{{Kind: snat.AzureLB}}},
	} {
		scenarios = append(scenarios, s.WithDefaults())
	}
	result, err := snatlab.Run(t.Context(), snatlab.Config{Scenarios: scenarios, Launcher: here()})
	if err != nil || result.Runs != 0 || result.Differ != 0 {
		t.Fatalf("%v: %+v", err, result)
	}
	for i, word := range []string{"files of a client process", "grows", "one place", "one server", "16 nodes", "conntrack tables end at", "not udp"} {
		if c := result.Cells[i]; !strings.Contains(c.Kernel.NotRun, word) || !strings.Contains(c.Weir.NotRun, word) {
			t.Errorf("%s: %q, %q; want %q", c.Scenario, c.Kernel.NotRun, c.Weir.NotRun, word)
		}
	}
	var text, page bytes.Buffer
	if err := snatlab.Write(&text, result); err != nil || !strings.Contains(text.String(), "not run with weir's NAT: the testbed has one server") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := snatlab.WriteHTML(&page, result, "test"); err != nil || !strings.Contains(page.String(), "not run") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// An interrupt leaves nothing behind.
func TestRootInterrupted(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "nft")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := snat.Scenario{Name: "interrupted", Path: []snat.StageSpec{{Kind: snat.AzureLB}}}.WithDefaults()
	_, err := snatlab.Run(ctx, snatlab.Config{Scenarios: []snat.Scenario{s}, NATs: []string{snatlab.Kernel}, Launcher: here(), Progress: func(_ float64, what string) {
		if strings.Contains(what, "1,024 of") {
			cancel()
		}
	}})
	if err == nil || ctx.Err() == nil {
		t.Fatalf("error %v, context %v", err, ctx.Err())
	}
	entries, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), fmt.Sprintf("snatlab.%d.", os.Getpid())) {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}
