package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Real clients get through a flood, and what they had before stays: on the DTLS node, the balancers, the TURN gateway and the
// probes. The page can be drawn again from the JSON. A flood waits more than it works: three go on at a time.
func TestRootBenchFloodsOfSessions(t *testing.T) {
	bearFloods(t, "dtls-half-open/coap-x509", "dtls-hello/coap-x509", "one-identity/coap", "idle-connections/admin-coap", "turn-allocate/turn")
}

func TestRootBenchFloodsOfFlows(t *testing.T) {
	bearFloods(t, "udp-flows/udp", "udp-flows/nat-xdp", "udp-flows/cid-xdp")
}

func TestRootBenchFloodsOfFragments(t *testing.T) {
	bearFloods(t, "later-fragments/nat-tcx", "reordered/nfqueue-fast", "first-fragments/nfqueue-split")
}

func bearFloods(t *testing.T, floods ...string) {
	t.Helper()
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "iptables")
	page := filepath.Join(t.TempDir(), "floods.html")
	out, err := clitest.Execute(t, "bench", "run", "floods", "--quick", "--duration", "3s", "--only", strings.Join(floods, ","), "--json", "--report", page)
	if err != nil {
		t.Errorf("%v", err)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != len(floods) {
		t.Fatalf("%d results, %v\n%s", len(results), err, out)
	}
	for _, r := range results {
		name := r.Parameters["load"] + "/" + r.Path
		if r.Parameters["verdict"] != "reached" {
			t.Errorf("%s: %v", name, r.Parameters)
		}
		if figure(r, "reached") < figure(r, "offered")/4 || figure(r, "new clients") < 3 {
			t.Errorf("%s: %.0f of %.0f/s, %.0f new clients: it proves nothing", name, figure(r, "reached"), figure(r, "offered"), figure(r, "new clients"))
		}
	}
	file := filepath.Join(t.TempDir(), "floods.json")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := clitest.Execute(t, "bench", "report", file, "-o", "-")
	if err != nil {
		t.Fatal(err)
	}
	if first, err := os.ReadFile(page); err != nil || again != string(first) {
		t.Errorf("the report drawn again is another one: %v", err)
	}
}
