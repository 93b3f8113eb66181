package bench

import (
	"encoding/json"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Of two balancers behind a router one is powered off: flows that are steered by equal tables, or whose state is shared, live on; those
// that only the kernel of the lost one knew do not.
func TestRootBenchFailover(t *testing.T) {
	netlabtest.Root(t)
	netlabtest.Tools(t, "bird", "birdc", "iptables")
	if !clitest.OwnProcess(t) {
		return
	}
	out, err := clitest.Execute(t, "bench", "run", "failover", "--flows", "200", "--rate", "400", "--bfd", "200ms", "--only", "weir-dsr,weir-nat-sync,iptables-dnat", "--changes", "none", "--json")
	if err != nil {
		t.Error(err)
	}
	var results []*measure.Result
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, r := range results {
		lost := restartFigure(t, r, "TCP flows lost") + restartFigure(t, r, "UDP flows lost")
		t.Logf("%s: %g flows lost, last packet after %g ms", r.Path, lost, restartFigure(t, r, "last lost packet"))
		if r.Requests != 200 || r.Parameters["failed"] != "" {
			t.Errorf("%s: %v, %v", r.Path, r.Figures, r.Parameters)
		}
		if ours := r.Path != "iptables-dnat"; ours != (lost == 0) {
			t.Errorf("%s: %g flows lost: %v", r.Path, lost, r.Parameters)
		}
		if at := restartFigure(t, r, "last lost packet"); r.Path == "weir-nat-sync" && (at <= 0 || at > 5000) {
			t.Errorf("%s: the last lost packet after %g ms", r.Path, at)
		}
	}
}
