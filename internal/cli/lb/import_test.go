package lb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestLBImportNFQLB(t *testing.T) {
	const shown = "../../../internal/control/nfqlb/testdata/lb.txt"
	out, code := clitest.Weir(t, "lb", "import", "nfqlb", shown)
	if code != 0 || !strings.Contains(out, "- {name: fw101, mark: 101, index: 0}") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code := clitest.Weir(t, "check", file, "--datapath", "nfqueue"); code != 0 || !strings.Contains(out, "mark 0x65 index 0") || strings.Contains(out, "without index") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := clitest.Weir(t, "lb", "import", "nfqlb", file); code != 2 || !strings.Contains(out, "weir.yaml:1: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
