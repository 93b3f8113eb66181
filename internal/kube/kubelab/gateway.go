package kubelab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// GatewayAPI installs the CRDs of the Gateway API's standard channel, as the module of its types has them, and waits until they are served.
// It runs the go command, in the module's directory or below it.
func (c *ControlPlane) GatewayAPI() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config/crd/standard/gateway.networking.k8s.io_*s.yaml"))
	if err != nil || len(files) < 5 {
		return fmt.Errorf("%d files of CRDs: %w", len(files), err)
	}
	for _, file := range files {
		if strings.Contains(file, "_vap_") {
			continue
		}
		if err := c.CRDFile(file); err != nil {
			return err
		}
	}
	return nil
}

// CRDFile is CRDs of a file.
func (c *ControlPlane) CRDFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return c.CRDs(text)
}

// CRDs applies CustomResourceDefinitions and waits until they are served.
func (c *ControlPlane) CRDs(text []byte) error {
	if err := c.Apply("", text, false); err != nil {
		return err
	}
	documents, err := Documents(text)
	if err != nil {
		return err
	}
	for _, document := range documents {
		var object Object
		if err := json.Unmarshal(document, &object); err != nil {
			return err
		}
		if err := c.Await(object.Metadata.Name+" is served", func() bool { return c.served(&object) }); err != nil {
			return err
		}
	}
	return nil
}

// served says whether the API server serves the objects of a CRD.
func (c *ControlPlane) served(object *Object) bool {
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
}
