package lab

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestRootLabUpExecDown(t *testing.T) {
	netlabtest.Root(t)
	if names, err := netlab.Kept(); err != nil || slices.Contains(names, "chain") {
		t.Fatalf("labs that are up: %v, %v; take chain down first: weir lab down chain", names, err)
	}
	out, err := clitest.Execute(t, "lab", "up", "chain", "--json")
	t.Cleanup(func() {
		if _, err := netlab.Remove("chain"); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var lab labJSON
	if err := json.Unmarshal([]byte(out), &lab); err != nil || lab.Name != "chain" || len(lab.Namespaces) != 5 {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := clitest.Execute(t, "lab", "up", "chain"); err == nil || !strings.Contains(err.Error(), "weir lab down chain") {
		t.Errorf("a second up: %v", err)
	}
	if out, err := clitest.Execute(t, "lab", "list"); err != nil || !slices.Contains(strings.Fields(out), "chain") {
		t.Errorf("list: %q, %v", out, err)
	}
	for _, command := range []string{"exec", "down"} { // a shell knows it
		if values, _ := clitest.Offered(t, "lab", command, "ch"); !slices.Contains(clitest.Names(values), "chain") {
			t.Errorf("lab %s: %q is offered", command, values)
		}
	}
	// The program takes the place of weir: who signals the one meets the other.
	inside := exec.Command(os.Args[0], "lab", "exec", "chain", "backend", "--", "sh", "-c", "ip addr show dev eth0 | grep -q 10.4.0.2 && echo $$; exit 7")
	pid, err := inside.Output()
	if code := inside.ProcessState.ExitCode(); code != 7 || strings.TrimSpace(string(pid)) != strconv.Itoa(inside.ProcessState.Pid()) {
		t.Errorf("exec: process %d wrote %q, exit code %d, %v", inside.ProcessState.Pid(), pid, code, err)
	}
	if out, err := exec.Command(os.Args[0], "lab", "exec", "chain", "backend", "--", "no-such-program").CombinedOutput(); err == nil || !strings.Contains(string(out), "no-such-program") {
		t.Errorf("exec of nothing: %v, %s", err, out)
	}
	if _, err := clitest.Execute(t, "lab", "exec", "chain", "nobody", "--", "true"); err == nil || !strings.Contains(err.Error(), "client, r1, lb, r2, backend") {
		t.Errorf("an unknown namespace: %v", err)
	}
	if out, err := clitest.Execute(t, "lab", "down", "chain"); err != nil || !strings.Contains(out, "5 namespaces") {
		t.Errorf("down: %q, %v", out, err)
	}
	if _, err := clitest.Execute(t, "lab", "down", "chain"); err == nil {
		t.Error("a second down reported success")
	}
}
