package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// The comparison runs all its paths, in a namespace of its own.
func TestRootBenchNAT(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "socat", "iptables")
	for _, network := range []string{"loopback", "veth"} {
		t.Run(network, func(t *testing.T) {
			page := filepath.Join(t.TempDir(), "nat.html")
			cmd := exec.Command(os.Args[0], "bench", "nat", "--network", network, "--clients", "10", "--requests", "500", "--rounds", "1", "--json", "--report", page)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var result bench.NATResult
			if err := json.Unmarshal(out, &result); err != nil {
				t.Fatal(err)
			}
			if len(result.Paths) != 6 {
				t.Fatalf("%d paths", len(result.Paths))
			}
			for _, path := range result.Paths {
				if path.Skipped != "" || path.Rate <= 0 || path.TotalCPU <= 0 {
					t.Errorf("%+v", path)
				}
				if path.Latency == nil || path.Latency.Count != 500 || len(path.Samples) == 0 || path.Samples[0].Max <= 0 {
					t.Errorf("%s: latency %+v, samples %+v", path.Name, path.Latency, path.Samples)
				}
				// The offload's process has next to nothing to do: its time may be below what the kernel counts.
				user := strings.HasPrefix(path.Name, "weir") || path.Name == "socat"
				if user != (path.ProxyCPU > 0) && !strings.Contains(path.Name, "offload") {
					t.Errorf("%s: the path's own processes spent %v", path.Name, path.ProxyCPU)
				}
			}
			if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "nat: latency, percentiles of the run") {
				t.Errorf("the page: %v", err)
			}
		})
	}
}
