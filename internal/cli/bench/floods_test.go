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
// probes. The page can be drawn again from the JSON. A flood waits more than it works, but bursts: .ci/test lets two go on at a time.
func TestRootBenchFloodsOfSessions(t *testing.T) {
	bearFloods(t, "2s", "dtls-half-open/coap-x509", "dtls-hello/coap-x509", "one-identity/coap", "idle-connections/admin-coap", "turn-allocate/turn")
}

// 1,000 entries of weir nat are full after 2.5 s.
func TestRootBenchFloodsOfFlows(t *testing.T) {
	bearFloods(t, "3s", "udp-flows/udp", "udp-flows/nat-xdp", "udp-flows/cid-xdp")
}

func TestRootBenchFloodsOfFragments(t *testing.T) {
	bearFloods(t, "2s", "later-fragments/nat-tcx", "reordered/nfqueue-fast", "first-fragments/nfqueue-split")
}

func bearFloods(t *testing.T, duration string, floods ...string) {
	t.Helper()
	netlabtest.Root(t)
	if !clitest.OwnProcess(t) {
		return
	}
	netlabtest.Tools(t, "iptables")
	page := filepath.Join(t.TempDir(), "floods.html")
	out, void := floodOnce(t, duration, floods, "--report", page)
	for try := 0; try < 3 && len(void) > 0; try++ { // the machine was too busy to flood
		_, void = floodOnce(t, duration, void)
	}
	if len(void) > 0 {
		t.Errorf("%v: a quarter of the rate was not reached, or fewer than three new clients came: it proves nothing", void)
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

// floodOnce runs floods, whose aims must be reached, and returns their results and the floods that prove nothing.
func floodOnce(t *testing.T, duration string, floods []string, more ...string) (out string, void []string) {
	t.Helper()
	out, err := clitest.Execute(t, append([]string{"bench", "run", "floods", "--quick", "--duration", duration, "--only", strings.Join(floods, ","), "--json"}, more...)...)
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
			t.Logf("%s: %.0f of %.0f/s, %.0f new clients", name, figure(r, "reached"), figure(r, "offered"), figure(r, "new clients"))
			void = append(void, name)
		}
	}
	return out, void
}
