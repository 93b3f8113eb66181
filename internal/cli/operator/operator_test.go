package operator

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status/statustest"
	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const classes = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: weir}
spec: {controllerName: weir-lb.github.io/l4}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: other}
spec: {controllerName: example.net/other}
`

// accepted is the condition Accepted of a GatewayClass, with the generation that it is of; empty: not there.
func accepted(t *testing.T, plane *kubetest.ControlPlane, name string) string {
	t.Helper()
	var class gatewayv1.GatewayClass
	clitest.Must(t, plane.Get("/apis/gateway.networking.k8s.io/v1/gatewayclasses/"+name, &class))
	c := conditions.Find(class.Status.Conditions, "Accepted")
	if c == nil || c.ObservedGeneration != class.Generation {
		return ""
	}
	return string(c.Status)
}

func TestRootOperatorClasses(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	lab := netlabtest.Up(t, netlab.Topology{Name: "operator", Namespaces: []netlab.Namespace{
		{Name: "control", Bridges: []netlab.Bridge{{Name: "pods", Addresses: netlab.Prefixes("10.77.255.1/16")}}},
	}})
	host := lab.Namespace("control")
	plane := kubetest.Start(t, host, netip.MustParseAddr("10.77.255.1"))
	start := func(name string, args ...string) *clitest.Process {
		return clitest.StartIn(t, host, name, append([]string{"operator", "--kubeconfig", plane.Kubeconfig(), "--leader-election-namespace", "default", "--metrics", ""}, args...)...)
	}
	first := start("first")
	plane.GatewayAPI() // comes after the operator, which waits for it
	clitest.Must(t, plane.Apply("", []byte(classes), false))
	netlabtest.Eventually(t, "the class is accepted", func() bool { return accepted(t, plane, "weir") == "True" })
	if got := accepted(t, plane, "other"); got != "" {
		t.Errorf("the class of another controller has Accepted=%s", got)
	}
	writes := func(p *clitest.Process) (n int) {
		for line := range strings.Lines(clitest.HTTPGet(t, p.Socket, "/metrics")) {
			if _, err := fmt.Sscanf(line, "weir_operator_status_writes_total %d", &n); err == nil {
				return n
			}
		}
		t.Fatal("no counter of writes")
		return 0
	}
	clitest.Must(t, plane.Merge("/apis/gateway.networking.k8s.io/v1/gatewayclasses/weir", `{"spec": {"description": "another generation"}}`))
	netlabtest.Eventually(t, "the new generation is accepted", func() bool { return accepted(t, plane, "weir") == "True" })
	netlabtest.Eventually(t, "both writes are counted, after the API server has answered", func() bool { return writes(first) >= 2 })
	if n := writes(first); n != 2 {
		t.Errorf("%d statuses were written for two generations", n)
	}
	statustest.Check(t, "operator", clitest.HTTPGet(t, first.Socket, "/metrics"))
	second := start("second", "--discovery", "10.77.255.1:13488")
	// serves says whether an operator answers data planes.
	serves := func(address string) bool {
		return host.Do(func() error {
			connection, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			return connection.Close()
		}) == nil
	}
	netlabtest.Eventually(t, "the leader and the other one serve configurations", func() bool { return serves("10.77.255.1:13478") && serves("10.77.255.1:13488") })
	netlabtest.Eventually(t, "the second one has rendered the world", func() bool {
		return !strings.Contains(clitest.HTTPGet(t, second.Socket, "/readyz"), "not rendered")
	})
	if writes(second) != 0 {
		t.Error("the one that is not the leader wrote")
	}
	first.Stop() // gives the Lease back
	if !serves("10.77.255.1:13488") {
		t.Error("the other one does not serve while there is no leader")
	}
	clitest.Must(t, plane.Merge("/apis/gateway.networking.k8s.io/v1/gatewayclasses/weir", `{"spec": {"description": "a third one"}}`))
	netlabtest.Eventually(t, "the next leader accepts", func() bool { return accepted(t, plane, "weir") == "True" })
}
