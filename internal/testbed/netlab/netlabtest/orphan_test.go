package netlabtest_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// roleEnv makes the test binary the process of other tests, or a helper's helper that no program waits for.
const roleEnv = "NETLABTEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "tests": // starts a helper and is killed
		if netlabtest.AdoptChildren() == nil {
			helper := exec.Command(os.Args[0])
			helper.Env, helper.Stdout = append(os.Environ(), roleEnv+"=helper"), os.Stdout
			_ = helper.Run()
		}
	case "helper":
		netlabtest.EndWithTest()
		_, _ = os.Stdout.WriteString("here\n")
		select {}
	default:
		os.Exit(m.Run())
	}
}

// What a test's process has started ends when that is killed: its end of the pipe closes.
func TestOrphansEnd(t *testing.T) {
	tests := exec.Command(os.Args[0])
	tests.Env = append(os.Environ(), roleEnv+"=tests")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tests.Stdout = w
	if err := tests.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); err != nil || line != "here\n" {
		t.Fatalf("the helper says %q, %v", line, err)
	}
	if err := tests.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = tests.Wait()
	if rest, err := io.ReadAll(out); err != nil || len(rest) != 0 { // waits until no one has the pipe
		t.Errorf("%q, %v", rest, err)
	}
}
