package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
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
	help, err := clitest.Execute(t, "lab", "config", "--help")
	for _, name := range netlab.Names() {
		name, _, _ = strings.Cut(name, "\t")
		_, wrong := clitest.Execute(t, "lab", "config", name)
		if named := regexp.MustCompile(`(?m)^Print.* ` + name + `[,. ]`).MatchString(help); err != nil || named != (wrong == nil) {
			t.Errorf("the help names %s: %t, and it has a configuration: %v", name, named, wrong)
		}
	}
	for lab, want := range map[string]string{"dsr": "no configuration of its own", "nobody": "no topology"} {
		if _, err := clitest.Execute(t, "lab", "config", lab); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", lab, err)
		}
	}
}
