package kubetest_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/testbed/scratch"
)

const root = "../../.."

func TestMain(m *testing.M) { clitest.Main(m) }

// slots is how many Pods can run at a time.
const slots = 6

// network is a control plane, slots of Pods and a client on one segment.
func network(t *testing.T) (lab *netlab.Lab, pods []kubetest.Slot) {
	t.Helper()
	topology := netlab.Topology{Name: "kube", Namespaces: []netlab.Namespace{
		{Name: "control", Bridges: []netlab.Bridge{{Name: "pods", Addresses: netlab.Prefixes("10.77.255.1/16")}}}, {Name: "client"},
	}}
	plug := func(name, address string) {
		topology.Links = append(topology.Links, netlab.Link{
			A: netlab.End{Namespace: "control", Name: "to" + name, Bridge: "pods"},
			B: netlab.End{Namespace: name, Name: "eth0", Addresses: netlab.Prefixes(address + "/16")},
		})
	}
	plug("client", "10.77.254.1")
	for i := range slots {
		name, address := fmt.Sprintf("pod%d", i), fmt.Sprintf("10.77.0.%d", 10+i)
		topology.Namespaces = append(topology.Namespaces, netlab.Namespace{Name: name})
		plug(name, address)
		pods = append(pods, kubetest.Slot{Address: netip.MustParseAddr(address)})
	}
	lab = netlabtest.Up(t, topology)
	for i := range pods {
		pods[i].Host = lab.Namespace(fmt.Sprintf("pod%d", i))
	}
	return lab, pods
}

// build compiles the program that images contain.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "weir")
	run(t, []string{"CGO_ENABLED=0"}, "go", "build", "-C", root, "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "./cmd/weir")
	return binary
}

// image is the unpacked image of this source, made once for all tests.
func image(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		var err error
		built.scratch, err = scratch.New() // outlives the test that makes it
		clitest.Must(t, err)
		built.directory = filepath.Join(built.scratch.Path, "image")
		clitest.Must(t, os.Rename(unpack(t, writeImage(t, build(t))), built.directory))
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
