package kubetest

import (
	"net/netip"
	"testing"

	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// What tests use of package kubelab.
type (
	Slot           = kubelab.Slot
	Kubelet        = kubelab.Kubelet
	KubeletOptions = kubelab.KubeletOptions
	Container      = kubelab.Container
)

// Directory is where the programs of the control plane are.
func Directory() string { return kubelab.Directory() }

// ControlPlane is one whose failures are those of a test.
type ControlPlane struct {
	*kubelab.ControlPlane
	t testing.TB
}

// Start runs a control plane in host, whose address is, until the test ends. It skips the test where its programs are missing; with
// WEIR_ROOT=1 it fails it.
func Start(t testing.TB, host *netlab.Host, address netip.Addr) *ControlPlane {
	t.Helper()
	netlabtest.Tools(t, kubelab.Paths()...)
	plane, err := kubelab.Start(t.Context(), kubelab.Options{Host: host, Address: address, Files: t.TempDir(), Log: t.Logf})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(plane.Output())
		}
		plane.Stop()
	})
	return &ControlPlane{ControlPlane: plane, t: t}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// GatewayAPI installs the CRDs of the Gateway API.
func (c *ControlPlane) GatewayAPI() {
	c.t.Helper()
	must(c.t, c.ControlPlane.GatewayAPI())
}

// CRDs applies CustomResourceDefinitions and waits until they are served.
func (c *ControlPlane) CRDs(text []byte) {
	c.t.Helper()
	must(c.t, c.ControlPlane.CRDs(text))
}

// Pause stops the API server, as one that is away, until resume is called.
func (c *ControlPlane) Pause() (resume func()) {
	c.t.Helper()
	again, err := c.ControlPlane.Pause()
	must(c.t, err)
	return func() { must(c.t, again()) }
}

// Kubelet starts a kubelet with slots that runs every image from an unpacked one, until the test ends.
func (c *ControlPlane) Kubelet(image string, slots []Slot) *Kubelet {
	c.t.Helper()
	return c.KubeletOf(KubeletOptions{Image: image, Slots: slots})
}

// KubeletOf starts a kubelet, until the test ends.
func (c *ControlPlane) KubeletOf(o KubeletOptions) *Kubelet {
	c.t.Helper()
	k, err := c.StartKubelet(o)
	must(c.t, err)
	c.t.Cleanup(func() {
		for name, output := range k.Stop() {
			if c.t.Failed() {
				c.t.Logf("output of Pod %s:\n%s", name, output)
			}
		}
	})
	return k
}
