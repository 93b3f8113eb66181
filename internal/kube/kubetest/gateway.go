package kubetest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// GatewayAPI installs the CRDs of the Gateway API's standard channel, as the module of its types has them, and waits until they are served.
func (c *ControlPlane) GatewayAPI() {
	c.t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		c.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config/crd/standard/gateway.networking.k8s.io_*s.yaml"))
	if err != nil || len(files) < 5 {
		c.t.Fatalf("%d files of CRDs: %v", len(files), err)
	}
	for _, file := range files {
		if strings.Contains(file, "_vap_") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		c.CRDs(text)
	}
}

// CRDs applies CustomResourceDefinitions and waits until they are served.
func (c *ControlPlane) CRDs(text []byte) {
	c.t.Helper()
	if err := c.Apply("", text, false); err != nil {
		c.t.Fatal(err)
	}
	documents, err := Documents(text)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, document := range documents {
		var object Object
		if err := json.Unmarshal(document, &object); err != nil {
			c.t.Fatal(err)
		}
		netlabtest.Eventually(c.t, object.Metadata.Name+" is served", func() bool {
			var crd struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
			if err := c.Get(object.path(), &crd); err != nil {
				return false
			}
			for _, condition := range crd.Status.Conditions {
				if condition.Type == "Established" && condition.Status == "True" {
					return true
				}
			}
			return false
		})
	}
}
