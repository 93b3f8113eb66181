package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestLabConfigIsForTheDataPath(t *testing.T) {
	for _, name := range []string{"nfqueue", "nfqueue-dsr"} {
		text, err := clitest.Execute(t, "lab", "config", name)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := clitest.Execute(t, "check", file, "--datapath", "nfqueue"); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	for lab, want := range map[string]string{"dsr": "no configuration of its own", "nobody": "no topology"} {
		if _, err := clitest.Execute(t, "lab", "config", lab); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", lab, err)
		}
	}
}
