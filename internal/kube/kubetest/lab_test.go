package kubetest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

const root = "../../.."

func TestMain(m *testing.M) { clitest.Main(m) }

// slots is how many Pods can run at a time.
const slots = 6

// network is a network of its own for a control plane, Pods and clients.
func network(t *testing.T) (lab *netlab.Lab, pods []kubetest.Slot) {
	t.Helper()
	lab = netlabtest.Up(t, kubelab.Topology("kube", slots))
	return lab, kubelab.Slots(lab, slots)
}

// image is the unpacked image of this source, made once for all tests.
func image(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		var err error
		built.scratch, err = scratch.New() // outlives the test that makes it
		clitest.Must(t, err)
		built.directory = filepath.Join(built.scratch.Path, "image")
		clitest.Must(t, os.Rename(unpack(t, writeImage(t, netlabtest.Weir(t))), built.directory))
	})
	return built.directory
}

var built struct {
	once      sync.Once
	scratch   *scratch.Dir // locked as long as it is referred to
	directory string
}

// run runs a program to its end and returns what it wrote to standard output.
func run(t *testing.T, environment []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), environment...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}
