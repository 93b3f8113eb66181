package kubetest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// The addresses of the network of the tests.
const (
	clientAddress = kubelab.ClientAddress
	operatorPod   = kubelab.FirstPod // the first slot, which the operator takes
	authKey       = "key-of-the-application"
)

// turnCluster is a cluster with the operator of the chart.
type turnCluster struct {
	t       *testing.T
	plane   *kubetest.ControlPlane
	kubelet *kubetest.Kubelet
	client  *netlab.Host
	remote  *netlab.Host // which reaches the cluster through the load balancer's interface
	weir    string       // the program
	chart   string       // rendered
}

// startTurn starts a control plane, its kubelet, and the operator as a Pod of the chart with its role and no more.
func startTurn(t *testing.T) *turnCluster {
	t.Helper()
	lab, pods := network(t)
	plane := kubetest.Start(t, lab.Namespace("node"), netip.MustParseAddr(kubelab.NodeAddress))
	directory := image(t)
	c := &turnCluster{t: t, plane: plane, client: lab.Namespace("client"), remote: lab.Namespace("remote"), weir: filepath.Join(directory, "usr/bin/weir")}
	plane.GatewayAPI()
	crds, err := filepath.Glob(absolute(t, "deploy/operator/crds/*.yaml"))
	clitest.Must(t, err)
	for _, file := range crds {
		text, err := os.ReadFile(file)
		clitest.Must(t, err)
		plane.CRDs(text)
	}
	values := filepath.Join(t.TempDir(), "values.yaml")
	clitest.Must(t, os.WriteFile(values, []byte(`replicas: 1
turn:
  controllerName: stunner.l7mp.io/gateway-operator
  discoveryURL: http://`+operatorPod+`:13478
  defaultDataplane: {create: false}
auth: {enabled: true, keySecret: auth-key}
extraArgs: [--secret-interval=1s] # 10 s is the default: the test waits for three changes of a Secret
`+l4Values), 0o600))
	chart := tool(t, "render", "-chart", absolute(t, "deploy/operator"), "-values", values, "-name", "weir-operator", "-namespace", "weir-system")
	clitest.Must(t, plane.Apply("", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: weir-system}\n"), false))
	clitest.Must(t, plane.Apply("weir-system", []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: auth-key}\nstringData: {key: "+authKey+"}\n"), false))
	clitest.Must(t, plane.Apply("weir-system", l4Secrets(t), false))
	clitest.Must(t, plane.Apply("weir-system", []byte(chart), false))
	c.chart = chart
	c.kubelet = plane.KubeletOf(kubetest.KubeletOptions{Image: directory, Slots: pods, HostPaths: map[string]string{"/sys/fs/bpf": netlabtest.BPFFS(t), "/var/lib/weir": t.TempDir()}})
	netlabtest.Eventually(t, "the operator is ready", func() bool {
		var d appsv1.Deployment
		return plane.Get("/apis/apps/v1/namespaces/weir-system/deployments/weir-operator", &d) == nil && d.Status.AvailableReplicas == 1
	}, func() string { return c.output("weir-system") })
	return c
}

// pods are the Pods of a namespace.
func (c *turnCluster) pods(namespace string) []corev1.Pod {
	var list corev1.PodList
	if err := c.plane.Get("/api/v1/namespaces/"+namespace+"/pods", &list); err != nil {
		return nil
	}
	return list.Items
}

// output is what the Pods of a namespace wrote last.
func (c *turnCluster) output(namespace string) string {
	var all strings.Builder
	for _, pod := range c.pods(namespace) {
		if r := c.kubelet.Pod(namespace + "/" + pod.Name); r != nil {
			text := r.Output()
			fmt.Fprintf(&all, "%s: %s\n", pod.Name, text[max(0, len(text)-1500):])
		}
	}
	return all.String()
}

func (c *turnCluster) gateway(name string) gatewayv1.Gateway { return c.gatewayOf("media", name) }

func (c *turnCluster) gatewayOf(namespace, name string) (g gatewayv1.Gateway) {
	clitest.Must(c.t, c.plane.Get("/apis/gateway.networking.k8s.io/v1/namespaces/"+namespace+"/gateways/"+name, &g))
	return g
}

// is reports whether a condition has a status and reason, for the present generation.
func is(conditions []metav1.Condition, generation int64, kind, status, reason string) bool {
	for _, x := range conditions {
		if x.Type == kind {
			return string(x.Status) == status && x.Reason == reason && x.ObservedGeneration == generation
		}
	}
	return false
}

// awaitProgrammed waits until clients reach a Gateway, or until they do not for a reason.
func (c *turnCluster) awaitProgrammed(name, status, reason string) {
	c.t.Helper()
	netlabtest.Eventually(c.t, fmt.Sprintf("Gateway %s has Programmed=%s %s", name, status, reason), func() bool {
		g := c.gateway(name)
		return is(g.Status.Conditions, g.Generation, "Programmed", status, reason)
	}, func() string {
		text, _ := json.Marshal(c.gateway(name).Status)
		return string(text) + "\n" + c.output("weir-system") + c.output("media")
	})
}

// ready are the Pods of a Gateway that are ready and do not end.
func (c *turnCluster) ready(gateway string) (all []corev1.Pod) {
	for _, pod := range c.pods("media") {
		ready := false
		for _, x := range pod.Status.Conditions {
			ready = ready || x.Type == corev1.PodReady && x.Status == corev1.ConditionTrue
		}
		if ready && pod.DeletionTimestamp == nil && pod.Labels["stunner.l7mp.io/related-gateway-name"] == gateway {
			all = append(all, pod)
		}
	}
	return all
}

func (c *turnCluster) awaitReady(gateway string, count int) []corev1.Pod {
	c.t.Helper()
	var pods []corev1.Pod
	netlabtest.Eventually(c.t, fmt.Sprintf("%d Pods of %s are ready", count, gateway), func() bool {
		pods = c.ready(gateway)
		return len(pods) == count
	}, func() string { return c.output("media") })
	return pods
}

// assign is a load balancer that gives the Service of a Gateway an address.
func (c *turnCluster) assign(gateway, address string) {
	c.t.Helper()
	path := "/api/v1/namespaces/media/services/" + gateway
	netlabtest.Eventually(c.t, "Gateway "+gateway+" has a Service", func() bool {
		return c.plane.Merge(path+"/status", fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": %q}]}}}`, address)) == nil
	}, func() string { return c.output("weir-system") })
}

// cat sends a line through a TURN server to the echo server, and returns what was written until it came back, or the command ended.
func (c *turnCluster) cat(uri string, options ...string) string {
	c.t.Helper()
	cmd := exec.Command(c.weir, append([]string{"turn", "cat", "-", uri, "udp://" + clientAddress + ":9001", "--insecure"}, options...)...)
	in, err := cmd.StdinPipe()
	clitest.Must(c.t, err)
	out, err := cmd.StdoutPipe()
	clitest.Must(c.t, err)
	var diagnostics strings.Builder
	cmd.Stderr = &diagnostics
	clitest.Must(c.t, c.client.Start(cmd))
	limit := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer limit.Stop()
	const line = "through the gateway"
	fmt.Fprintln(in, line) // fails if the command has ended: then nothing comes back
	text := ""
	for lines := bufio.NewScanner(out); !strings.Contains(text, line) && lines.Scan(); {
		text += lines.Text() + "\n"
	}
	in.Close()
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait() // interrupted, or it has written why
	return text + diagnostics.String()
}

// echo answers datagrams in the client's namespace.
func (c *turnCluster) echo() {
	var socket net.PacketConn
	clitest.Must(c.t, c.client.Do(func() (err error) {
		socket, err = net.ListenPacket("udp4", clientAddress+":9001")
		return err
	}))
	c.t.Cleanup(func() { socket.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(buffer[:n], from) // lost: the test sees it
		}
	}()
}

// STUNner's YAML alone, on a cluster with Weir's operator: gateways run, tunnels go through them, and each object says how it is.
func TestRootTurnOperator(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	c := startTurn(t)
	text, err := os.ReadFile("testdata/turn.yaml")
	clitest.Must(t, err)
	clitest.Must(t, c.plane.Apply("media", text, false))
	c.echo()

	c.awaitProgrammed("udp-gateway", "False", "AddressNotAssigned")
	pod := c.awaitReady("udp-gateway", 1)[0]
	c.assign("udp-gateway", pod.Status.PodIP)
	c.awaitProgrammed("udp-gateway", "True", "Programmed")
	g := c.gateway("udp-gateway")
	if len(g.Status.Addresses) != 1 || g.Status.Addresses[0].Value != pod.Status.PodIP || g.Status.Listeners[0].AttachedRoutes != 1 {
		t.Errorf("status %+v", g.Status)
	}
	var route stunnerv1.UDPRoute
	clitest.Must(t, c.plane.Get("/apis/stunner.l7mp.io/v1/namespaces/media/udproutes/media-plane", &route))
	for _, kind := range []string{"Accepted", "ResolvedRefs"} {
		if len(route.Status.Parents) != 1 || !is(route.Status.Parents[0].Conditions, route.Generation, kind, "True", kind) {
			t.Errorf("route %s: %+v", kind, route.Status.Parents)
		}
	}
	for _, uri := range []string{"turn://user-1:pass-1@%s:3478?transport=udp", "turn://user-1:pass-1@%s:3478?transport=tcp"} {
		if out := c.cat(fmt.Sprintf(uri, pod.Status.PodIP)); !strings.Contains(out, "through the gateway") {
			t.Errorf("%s: %s\n%s", uri, out, c.output("media"))
		}
	}
	c.credentials("pass-1")
	c.looksUp()
	c.discovers()
	c.browse()
	c.measures()
	c.hostile()
	c.roll()
	c.scale()
	c.rotate()
	c.alone()
	c.wrong()
	c.keepsSecrets()
	c.layer4()
	c.remove()
	c.stunnerd()
	c.access()
}

// ask requests something of the authentication service, as an application in the cluster does.
func (c *turnCluster) ask(query string) (status int, text string) {
	c.t.Helper()
	return c.get("http://" + operatorPod + ":8088" + query)
}

// get requests a page from the network of the Pods.
func (c *turnCluster) get(url string) (status int, text string) {
	c.t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(_ context.Context, _, address string) (connection net.Conn, err error) {
		err = c.client.Do(func() (err error) {
			connection, err = net.DialTimeout("tcp", address, 10*time.Second)
			return err
		})
		return connection, err
	}}}
	response, err := client.Get(url)
	clitest.Must(c.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	clitest.Must(c.t, err)
	return response.StatusCode, string(body)
}

const askedGateway = "/?service=turn&namespace=media&gateway=udp-gateway&key="

// credentials are what an application gets of the authentication service: those that the gateway takes, and none without the key.
func (c *turnCluster) credentials(password string) {
	c.t.Helper()
	if status, text := c.ask(askedGateway + "wrong"); status != http.StatusForbidden || strings.Contains(text, password) {
		c.t.Errorf("without the key: %d %s", status, text)
	}
	address := c.gateway("udp-gateway").Status.Addresses[0].Value
	if status, text := c.ask(askedGateway + authKey); status != http.StatusOK || !strings.Contains(text, password) || !strings.Contains(text, address) {
		c.t.Errorf("credentials: %d %s", status, text)
	}
}

// looksUp sends through a gateway that is named as in Kubernetes: its address and credentials come from the config discovery service of the
// operator, through the API server.
func (c *turnCluster) looksUp() {
	c.t.Helper()
	for _, listener := range []string{"udp-listener", "tcp-listener"} {
		if out := c.cat("k8s://media/udp-gateway:"+listener, "--kubeconfig", c.plane.Kubeconfig()); !strings.Contains(out, "through the gateway") {
			c.t.Errorf("%s: %s\n%s", listener, out, c.output("weir-system"))
		} else if strings.Contains(out, "pass-1") {
			c.t.Errorf("a password in the output: %s", out)
		}
	}
	for uri, want := range map[string]string{
		"k8s://media/udp-gateway:none": "no listener", "k8s://media/none:udp-listener": "the service has no such configuration",
	} {
		if out := c.cat(uri, "--kubeconfig", c.plane.Kubeconfig()); !strings.Contains(out, want) {
			c.t.Errorf("%s: %s", uri, out)
		}
	}
}

// discovers runs a gateway that is no Pod and finds the service of its configuration as stunnerd does with -c k8s: at the API server.
func (c *turnCluster) discovers() {
	c.t.Helper()
	cmd := exec.Command(c.weir, "turn", "stunnerd", "-w", "-c", "k8s", "-i", "media/udp-gateway", "--kubeconfig", c.plane.Kubeconfig(), "--metrics=", "--admin", "unix:"+filepath.Join(c.t.TempDir(), "admin"))
	cmd.Env = append(os.Environ(), "STUNNER_ADDR="+clientAddress)
	lines, last := &programs.LastLines{}, ""
	cmd.Stdout, cmd.Stderr = lines, lines
	clitest.Must(c.t, c.client.Start(cmd))
	netlabtest.Eventually(c.t, "a gateway that is no Pod serves", func() bool {
		last = c.cat("turn://user-1:pass-1@" + clientAddress + ":3478")
		return strings.Contains(last, "through the gateway")
	}, func() string { return last + lines.LastOutput() })
	// A tunnel that was given up may have left an allocation, for which the first signal waits.
	clitest.Must(c.t, cmd.Process.Signal(os.Interrupt))
	netlabtest.Eventually(c.t, "the gateway drains", func() bool { return strings.Contains(lines.LastOutput(), "draining: ") }, lines.LastOutput)
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended
	// 130: the second signal came while it ended for the first one.
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 130 || strings.Contains(lines.LastOutput(), "pass-1") {
		c.t.Errorf("%v: %s", err, lines.LastOutput())
	}
}

// hostile changes nothing that it may not change, and its status has the reason.
func (c *turnCluster) hostile() {
	c.t.Helper()
	clitest.Must(c.t, c.plane.Apply("evil", []byte(`
apiVersion: v1
kind: Namespace
metadata: {name: evil}
---
apiVersion: stunner.l7mp.io/v1
kind: UDPRoute
metadata: {name: everything}
spec:
  parentRefs: [{name: udp-gateway, namespace: media}]
  rules: [{backendRefs: [{name: media-server, namespace: media}]}]
`), false))
	netlabtest.Eventually(c.t, "the route of another namespace is refused", func() bool {
		var route stunnerv1.UDPRoute
		clitest.Must(c.t, c.plane.Get("/apis/stunner.l7mp.io/v1/namespaces/evil/udproutes/everything", &route))
		return len(route.Status.Parents) == 1 && is(route.Status.Parents[0].Conditions, route.Generation, "Accepted", "False", "NotAllowedByListeners")
	})
}
