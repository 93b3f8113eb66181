package main

import (
	"bytes"
	"os"
	"os/exec"
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
	directory := t.TempDir()
	weir, deploy, page := filepath.Join(directory, "weir"), filepath.Join(directory, "deploy"), filepath.Join(directory, "page.html")
	for _, c := range []struct {
		environment string
		args        []string
	}{
		{"CGO_ENABLED=0", []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", weir, "../weir"}},
		{"", []string{"build", "-C", filepath.Join(root, "tools/deploy"), "-buildvcs=false", "-o", deploy, "."}}, // as other tests build it
	} {
		cmd := exec.CommandContext(t.Context(), "go", c.args...)
		cmd.Env = append(os.Environ(), c.environment)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	var out bytes.Buffer
	err = run(t.Context(), []string{"-weir", weir, "-deploy", deploy, "-root", root, "-clients", "10", "-calm", "200ms", "-report", page}, &out)
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
