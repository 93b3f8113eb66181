package operator

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/conditions"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const example = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: weir}
spec: {controllerName: weir-lb.github.io/l4}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  listeners:
  - {name: udp, protocol: UDP, port: 5300}
  - {name: tcp, protocol: TCP, port: 9300}
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: echo}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: echo, port: 53}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: echo}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: echo, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  type: LoadBalancer
  loadBalancerClass: weir-lb.github.io/l4
  allocateLoadBalancerNodePorts: false
  selector: {app: echo}
  ports:
  - {name: udp, port: 53, targetPort: 5300, protocol: UDP}
  - {name: tcp, port: 80, targetPort: 9300}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo}
spec:
  replicas: 2
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: echo, image: echo, command: [/echo]}]
`

// edge is a cluster with Pods, a load balancer in the kernel in front of them, the operator, and a client.
type edge struct {
	t      *testing.T
	plane  *kubetest.ControlPlane
	client *netlab.Host

	control            *netlab.Host
	pool, pins         string
	balancer, operator *clitest.Process
}

// run starts a load balancer and returns it.
func (e *edge) run(args ...string) *clitest.Process {
	return clitest.StartIn(e.t, e.control, "balancer", append([]string{
		"lb", "run", "--datapath", "ebpf", "--hook", "tcx",
		"--interface", "outside,pods", "--metrics", "",
	}, args...)...)
}

// operate starts an operator and returns it.
func (e *edge) operate(args ...string) *clitest.Process {
	return clitest.StartIn(e.t, e.control, "operator", append([]string{
		"operator", "--kubeconfig", e.plane.Kubeconfig(), "--address-pool", e.pool,
		"--metrics", "",
	}, args...)...)
}

func newEdge(t *testing.T, kubelet kubetest.KubeletOptions, slots int, pool string) *edge {
	topology := netlab.Topology{Name: "edge", Namespaces: []netlab.Namespace{
		{Name: "control", Forward: true, Bridges: []netlab.Bridge{{Name: "pods", Addresses: netlab.Prefixes("10.77.255.1/16")}}},
		{Name: "client", Routes: []netlab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.78.0.1")}}},
	}, Links: []netlab.Link{{
		A: netlab.End{Namespace: "control", Name: "outside", Addresses: netlab.Prefixes("10.78.0.1/24")},
		B: netlab.End{Namespace: "client", Name: "eth0", Addresses: netlab.Prefixes("10.78.0.2/24", "10.78.0.3/24")},
	}}}
	var pods []kubetest.Slot
	for i := range slots {
		name, address := fmt.Sprintf("pod%d", i), fmt.Sprintf("10.77.0.%d", 10+i)
		topology.Namespaces = append(topology.Namespaces, netlab.Namespace{Name: name, Routes: []netlab.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.77.255.1")}}})
		topology.Links = append(topology.Links, netlab.Link{
			A: netlab.End{Namespace: "control", Name: "to" + name, Bridge: "pods"},
			B: netlab.End{Namespace: name, Name: "eth0", Addresses: netlab.Prefixes(address + "/16")},
		})
		pods = append(pods, kubetest.Slot{Address: netip.MustParseAddr(address)})
	}
	lab := netlabtest.Up(t, topology)
	for i := range pods {
		pods[i].Host = lab.Namespace(fmt.Sprintf("pod%d", i))
	}
	control := lab.Namespace("control")
	e := &edge{t: t, client: lab.Namespace("client"), control: control, pool: pool, plane: kubetest.Start(t, control, netip.MustParseAddr("10.77.255.1"))}
	e.plane.GatewayAPI()
	directory := t.TempDir()
	file := filepath.Join(directory, "l4.yaml")
	clitest.Must(t, os.WriteFile(file, []byte("services: []\n"), 0o600))
	e.pins = filepath.Join(netlabtest.BPFFS(t), "edge")
	e.balancer = e.run("-c", file, "--pin-path", e.pins)
	e.operator = e.operate("--config-out", file, "--balancer", "unix:"+e.balancer.Socket)
	kubelet.Slots = pods
	e.plane.KubeletOf(kubelet)
	return e
}

// echoImage is the root directory of Pods with the program of testdata/echo.
func echoImage(t *testing.T) string {
	image := t.TempDir()
	for _, directory := range []string{"proc", "dev", "tmp"} {
		clitest.Must(t, os.Mkdir(filepath.Join(image, directory), 0o755))
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(image, "echo"), "./testdata/echo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	clitest.Must(t, os.Chmod(image, 0o755))
	return image
}

// ask sends one datagram, or opens one connection, from the client and returns the name of the Pod that answered.
func (e *edge) ask(network, address string) (name string, err error) {
	dialer := net.Dialer{Timeout: 2 * time.Second}
	if network == "udp" && strings.HasSuffix(address, ":53") {
		// The Service's VIP and the Gateway's lead to the same Pods: a client port that the kernel chooses for both within the time-out of a flow is refused.
		dialer.LocalAddr = &net.UDPAddr{IP: net.IPv4(10, 78, 0, 3)}
	}
	err = e.client.Do(func() error {
		c, err := dialer.Dial(network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		if network == "udp" {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
		}
		b := make([]byte, 256)
		n, err := c.Read(b)
		if err != nil && !(errors.Is(err, io.EOF) && n > 0) {
			return err
		}
		name = string(b[:n])
		return nil
	})
	return name, err
}

// gateway waits until the Gateway and its routes are as they should be, and returns its address.
func (e *edge) gateway() (address string) {
	e.t.Helper()
	var g gatewayv1.Gateway
	netlabtest.Eventually(e.t, "the Gateway is programmed, and the routes are accepted", func() bool {
		if err := e.plane.Get("/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/edge", &g); err != nil || len(g.Status.Addresses) != 1 {
			return false
		}
		if c := conditions.Find(g.Status.Conditions, "Programmed"); c == nil || c.Status != "True" || c.ObservedGeneration != g.Generation {
			return false
		}
		var u gatewayv1.UDPRoute
		if err := e.plane.Get("/apis/gateway.networking.k8s.io/v1/namespaces/default/udproutes/echo", &u); err != nil || len(u.Status.Parents) != 1 {
			return false
		}
		c := conditions.Find(u.Status.Parents[0].Conditions, "Accepted")
		return c != nil && c.Status == "True"
	}, func() string { return fmt.Sprintf("%+v", g.Status) })
	return g.Status.Addresses[0].Value
}

// ready waits until so many Pods are Ready and no others are there.
func (e *edge) ready(count int) (names map[string]bool) {
	e.t.Helper()
	netlabtest.Eventually(e.t, fmt.Sprintf("%d Pods are Ready", count), func() bool {
		var list corev1.PodList
		if err := e.plane.Get("/api/v1/namespaces/default/pods", &list); err != nil || len(list.Items) != count {
			return false
		}
		names = map[string]bool{}
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					names[list.Items[i].Name] = true
				}
			}
		}
		return len(names) == count
	})
	return names
}

// answers waits until the Pods that answer are exactly these.
func (e *edge) answers(network, address string, want map[string]bool) {
	e.t.Helper()
	state := ""
	netlabtest.Eventually(e.t, fmt.Sprintf("%d Pods answer over %s at %s", len(want), network, address), func() bool {
		got := map[string]int{}
		for range 32 {
			name, err := e.ask(network, address)
			if err != nil {
				state = err.Error()
				return false
			}
			got[name]++
		}
		state = fmt.Sprint(got)
		for name := range got {
			if !want[name] {
				return false
			}
		}
		return len(got) == len(want)
	}, func() string { return state })
}

func TestRootGatewayTraffic(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	image := echoImage(t)
	weirImage(t, image)
	e := newEdge(t, kubetest.KubeletOptions{Image: image}, 5, "192.0.2.0/29")
	clitest.Must(t, e.plane.Apply("default", []byte(example), false))
	address := e.gateway()
	pods := e.ready(2)
	e.answers("udp", address+":5300", pods)
	e.answers("tcp", address+":9300", pods)

	var service corev1.Service
	netlabtest.Eventually(t, "the Service has an address", func() bool {
		err := e.plane.Get("/api/v1/namespaces/default/services/echo", &service)
		return err == nil && len(service.Status.LoadBalancer.Ingress) == 1
	})
	own := service.Status.LoadBalancer.Ingress[0].IP
	if own == address || !strings.HasPrefix(own, "192.0.2.") {
		t.Errorf("the Service has the address %s, the Gateway %s", own, address)
	}
	e.answers("udp", own+":53", pods)
	e.answers("tcp", own+":80", pods)

	clitest.Must(t, e.plane.Merge("/apis/apps/v1/namespaces/default/deployments/echo", `{"spec": {"replicas": 3}}`))
	e.answers("udp", address+":5300", e.ready(3))
	clitest.Must(t, e.plane.Merge("/apis/apps/v1/namespaces/default/deployments/echo", `{"spec": {"replicas": 1}}`))
	e.answers("tcp", address+":9300", e.ready(1))

	clitest.Must(t, e.plane.Delete("/apis/gateway.networking.k8s.io/v1/namespaces/default/udproutes/echo", -1))
	netlabtest.Eventually(t, "no datagram is forwarded without a route", func() bool {
		_, err := e.ask("udp", address+":5300")
		return err != nil
	})
	if _, err := e.ask("tcp", address+":9300"); err != nil {
		t.Errorf("the TCPRoute of the same Gateway: %v", err)
	}
	if _, err := e.ask("tcp", own+":80"); err != nil {
		t.Errorf("the Service, before it has source ranges: %v", err)
	}
	clitest.Must(t, e.plane.Merge("/api/v1/namespaces/default/services/echo", `{"spec": {"loadBalancerSourceRanges": ["10.78.0.3/32"]}}`))
	netlabtest.Eventually(t, "the Service refuses the client 10.78.0.2", func() bool {
		_, err := e.ask("tcp", own+":80")
		return err != nil
	})
	if _, err := e.ask("udp", own+":53"); err != nil {
		t.Errorf("the client 10.78.0.3, which is in the source ranges of the Service: %v", err)
	}
	followsSource(e, address)
	steersByPolicy(e)
}
