package netlabtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/scratch"
)

// Weir returns the path of the static program, as images have it.
func Weir(t testing.TB) string {
	t.Helper()
	return program(t, "weir", ".", "./cmd/weir", "-trimpath")
}

// DeployTool returns the path of the program of the module tools/deploy. It is built as tests are, so that the packages that both need are compiled once.
func DeployTool(t testing.TB) string {
	t.Helper()
	return program(t, "deploy", "tools/deploy", ".")
}

// builds are the programs that this process has built.
var builds struct {
	sync.Mutex
	scratch *scratch.Dir // locked as long as the process runs
}

// program returns what .ci/test has built before all tests, because each link takes longer than most tests; without it, it builds the program once.
func program(t testing.TB, name, module, pkg string, flags ...string) string {
	t.Helper()
	if directory := os.Getenv("WEIR_TEST_PROGRAMS"); directory != "" {
		return filepath.Join(directory, name)
	}
	builds.Lock()
	defer builds.Unlock()
	if builds.scratch == nil {
		directory, err := scratch.New()
		if err != nil {
			t.Fatal(err)
		}
		builds.scratch = directory
	}
	file := filepath.Join(builds.scratch.Path, name)
	if _, err := os.Stat(file); err == nil {
		return file
	}
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	args := append([]string{"build", "-C", filepath.Join(root, module), "-buildvcs=false", "-ldflags", "-s -w", "-o", file}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	if len(flags) > 0 {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return file
}
