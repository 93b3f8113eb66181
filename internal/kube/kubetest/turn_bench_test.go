package kubetest_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// installLinked puts a program with its shared libraries into the image of the Pods that begin from now on.
func (c *turnCluster) installLinked(program string) {
	c.t.Helper()
	path, err := exec.LookPath(program)
	clitest.Must(c.t, err)
	out, err := exec.Command("ldd", path).Output()
	clitest.Must(c.t, err)
	files := []string{path}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	root := filepath.Dir(filepath.Dir(filepath.Dir(c.weir)))
	if out, err := exec.Command("cp", append([]string{"--parents", "--dereference", "-t", root}, files...)...).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

// measures runs STUNner's benchmark in its Kubernetes mode, against the Gateway: the rows of iperf, and nothing that is left in the cluster.
func (c *turnCluster) measures() {
	c.t.Helper()
	netlabtest.Tools(c.t, "iperf")
	c.installLinked("iperf")
	args := []string{
		"turn", "bench", "--platform", "k8s", "--gateway", "media/udp-gateway:udp-listener", "--kubeconfig", c.plane.Kubeconfig(), "--peer", "pod",
		"--clients", "2", "--duration", "1s", "--size", "1000", "--bandwidth", "1M", "--json",
	}
	cmd := exec.Command(c.weir, args...)
	var out, diagnostics strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	if err := c.client.Run(cmd); err != nil {
		c.t.Fatalf("%v: %s\n%s\n%s", err, diagnostics.String(), c.output("media"), c.output("weir-system"))
	}
	var results []v1.TurnBench
	if err := json.Unmarshal([]byte(out.String()), &results); err != nil || len(results) != 1 || len(results[0].Connections) != 2 {
		c.t.Fatalf("%v: %s", err, out.String())
	}
	for _, row := range append(results[0].Connections, results[0].Sum) {
		if row.Total < 100 || row.Lost > row.Total/2 || row.Bandwidth < 0.5e6 {
			c.t.Errorf("row %+v", row)
		}
	}
	if p := results[0].Parameters; results[0].Path != "kubernetes cat" || p["platform"] != "k8s" || p["latency"] != "one-way, two clocks" {
		c.t.Errorf("%s: %v", results[0].Path, p)
	}
	c.idle()
	for _, list := range []string{"/apis/apps/v1/namespaces/media/deployments", "/api/v1/namespaces/media/services", "/apis/stunner.l7mp.io/v1/namespaces/media/udproutes"} {
		var objects struct{ Items []json.RawMessage }
		clitest.Must(c.t, c.plane.Get(list+"?labelSelector=app.kubernetes.io/managed-by%3Dweir-bench", &objects))
		if len(objects.Items) > 0 {
			c.t.Errorf("%s: %d objects are left", list, len(objects.Items))
		}
	}
}
