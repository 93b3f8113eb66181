//go:build conformance

package operator

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// conformanceDirectory is where .ci/deps puts the suite and the programs of its Pods.
func conformanceDirectory(t *testing.T) string {
	cache, err := os.UserCacheDir()
	clitest.Must(t, err)
	return filepath.Join(cache, "weir", "conformance")
}

// image is the root directory of the suite's Pods.
func image(t *testing.T, from string, programs ...string) string {
	root := t.TempDir()
	clitest.Must(t, os.Chmod(root, 0o755))
	for _, directory := range []string{"proc", "dev", "tmp"} {
		clitest.Must(t, os.Mkdir(filepath.Join(root, directory), 0o755))
	}
	for _, program := range programs {
		in, err := os.Open(filepath.Join(from, program))
		clitest.Must(t, err)
		out, err := os.OpenFile(filepath.Join(root, program), os.O_CREATE|os.O_WRONLY, 0o755)
		clitest.Must(t, err)
		_, err = io.Copy(out, in)
		clitest.Must(t, err)
		clitest.Must(t, out.Close())
		clitest.Must(t, in.Close())
	}
	return root
}

// report is what the suite writes.
type report struct {
	Profiles []struct {
		Name string `json:"name"`
		Core struct {
			Result     string `json:"result"`
			Statistics struct{ Failed, Passed, Skipped int }
		} `json:"core"`
	} `json:"profiles"`
}

// The Gateway API's own suite, of the profiles for UDP and TCP, from a client's namespace through the load balancer in the kernel.
// `make conformance` runs it; WEIR_CONFORMANCE is the file that the report is written to.
func TestRootConformance(t *testing.T) {
	path := os.Getenv("WEIR_CONFORMANCE")
	if path == "" {
		t.Fatal("WEIR_CONFORMANCE is not set: run make conformance")
	}
	netlabtest.Root(t)
	directory := conformanceDirectory(t)
	suite := filepath.Join(directory, "conformance.test")
	netlabtest.Tools(t, suite, filepath.Join(directory, "echo-basic"), filepath.Join(directory, "coredns"))
	e := newEdge(t, kubetest.KubeletOptions{
		Image: image(t, directory, "echo-basic", "coredns"), Programs: map[string]string{"echo-basic": "/echo-basic", "coredns": "/coredns"},
		MaxGrace: 2 * time.Second, Listening: true,
	}, 60, "198.18.0.0/24")
	clitest.Must(t, e.plane.Apply("", []byte(classes), false))
	netlabtest.Eventually(t, "the class is accepted", func() bool { return accepted(t, e.plane, "weir") == "True" })

	cmd := exec.Command(suite, "-test.run", "TestConformance", "-test.v", "-test.timeout", "15m", "-gateway-class", "weir",
		"-conformance-profiles", "GATEWAY-UDP,GATEWAY-TCP", "-report-output", path, "-cleanup-base-resources=false",
		"-organization", "weir-lb", "-project", "weir", "-url", "https://github.com/weir-lb/weir", "-version", "main", "-contact", "https://github.com/weir-lb/weir/issues")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.plane.Kubeconfig())
	out := new(clitest.LockedBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	clitest.Must(t, e.client.Start(cmd))
	err := cmd.Wait()
	if log := os.Getenv("WEIR_CONFORMANCE_LOG"); log != "" {
		clitest.Must(t, os.WriteFile(log, []byte(out.String()), 0o644))
	}
	if err != nil {
		text := out.String()
		t.Errorf("%v\n%s", err, text[max(0, len(text)-8000):])
	}
	text, err := os.ReadFile(path)
	clitest.Must(t, err)
	var r report
	clitest.Must(t, yaml.Unmarshal(text, &r))
	if len(r.Profiles) != 2 {
		t.Fatalf("the report has %d profiles:\n%s", len(r.Profiles), text)
	}
	for _, p := range r.Profiles {
		t.Logf("%s: %s, %+v", p.Name, p.Core.Result, p.Core.Statistics)
		if p.Core.Statistics.Failed > 0 || p.Core.Statistics.Passed < 8 {
			t.Errorf("%s: %+v", p.Name, p.Core.Statistics)
		}
	}
}
