package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "clients" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The demonstration, short: each Pod is replaced, nothing is lost, and nothing is left.
func TestRootKubeDemo(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	for _, program := range kubelab.Programs() {
		netlabtest.Tools(t, filepath.Join(kubelab.Directory(), program))
	}
	root, err := filepath.Abs("../..")
	clitest.Must(t, err)
	page := filepath.Join(t.TempDir(), "page.html")
	var out bytes.Buffer
	err = run(t.Context(), []string{"-weir", netlabtest.Weir(t), "-deploy", netlabtest.DeployTool(t), "-root", root, "-clients", "10", "-calm", "200ms", "-report", page}, &out)
	t.Log(out.String())
	if err != nil || !strings.Contains(out.String(), "Lost: 0 of 10 DTLS sessions, 0 of 10 TURN allocations") {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "<svg") {
		t.Errorf("%v: the page has no plot", err)
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if len([]rune(line)) > 80 && !strings.Contains(line, page) {
			t.Errorf("a line with %d columns: %s", len([]rune(line)), line)
		}
	}
}
