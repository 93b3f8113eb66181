//go:build stunneroperator

package kubetest_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// stunnersOperator is STUNner's operator as a process in the node's namespace.
type stunnersOperator struct {
	*turnCluster
	node    *netlab.Host
	process *exec.Cmd
	log     *os.File
}

// startUnder starts a control plane with STUNner's objects, and STUNner's operator, which tools/stunner/operator builds.
func startUnder(t *testing.T) *stunnersOperator {
	t.Helper()
	cache, err := os.UserCacheDir()
	clitest.Must(t, err)
	program := filepath.Join(cache, "weir", "stunner", "operator")
	netlabtest.Tools(t, program)
	lab, pods := network(t)
	plane := kubetest.Start(t, lab.Namespace("node"), netip.MustParseAddr(kubelab.NodeAddress))
	directory := image(t)
	c := &turnCluster{t: t, plane: plane, client: lab.Namespace("client"), remote: lab.Namespace("remote"), weir: filepath.Join(directory, "usr/bin/weir")}
	o := &stunnersOperator{turnCluster: c, node: lab.Namespace("node")}
	plane.GatewayAPI()
	crds, err := filepath.Glob(absolute(t, "deploy/operator/crds/stunner*.yaml"))
	clitest.Must(t, err)
	for _, file := range crds {
		clitest.Must(t, plane.CRDFile(file))
	}
	c.kubelet = plane.KubeletOf(kubetest.KubeletOptions{Image: directory, Slots: pods})
	o.log, err = os.Create(filepath.Join(t.TempDir(), "log"))
	clitest.Must(t, err)
	t.Cleanup(func() {
		o.stop()
		if t.Failed() {
			text, _ := os.ReadFile(o.log.Name())
			t.Logf("STUNner's operator:\n%s", text[max(0, len(text)-4000):])
		}
	})
	o.start(program)
	return o
}

// start runs the operator.
func (o *stunnersOperator) start(program string, options ...string) {
	o.t.Helper()
	at := kubelab.NodeAddress + ":13478"
	o.process = exec.Command(program, append([]string{"--config-discovery-address", at, "--metrics-bind-address", "0", "--zap-log-level", "info"}, options...)...)
	o.process.Env = append(os.Environ(), "KUBECONFIG="+o.plane.Kubeconfig())
	o.process.Stdout, o.process.Stderr = o.log, o.log
	clitest.Must(o.t, o.node.Start(o.process))
}

func (o *stunnersOperator) stop() {
	if o.process.ProcessState == nil {
		_ = o.process.Process.Kill() // it may have ended
		_ = o.process.Wait()
	}
}

// tunnel sends through the gateway over both protocols with a password.
func (o *stunnersOperator) tunnel(address, password string) bool {
	for _, transport := range []string{"udp", "tcp"} {
		if !strings.Contains(o.cat(fmt.Sprintf("turn://user-1:%s@%s:3478?transport=%s", password, address, transport)), "through the gateway") {
			return false
		}
	}
	return true
}

// The gateway is the data plane of STUNner's operator: it runs from the Deployment that STUNner makes, with its command, arguments, environment and
// probes, follows the configuration, and ends as its Pods have to. Only the program behind the name stunnerd is Weir's.
func TestRootUnderStunnersOperator(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	o := startUnder(t)
	program := o.process.Path
	objects, err := os.ReadFile("testdata/turn.yaml")
	clitest.Must(t, err)
	clitest.Must(t, o.plane.Apply("media", objects, false))
	o.echo()
	pod := o.awaitReady("udp-gateway", 1)[0]
	o.template(&pod.Spec.Containers[0])
	o.assign("udp-gateway", pod.Status.PodIP)
	o.awaitProgrammed("udp-gateway", "True", "Programmed")
	if !o.tunnel(pod.Status.PodIP, "pass-1") {
		t.Fatalf("no datagram through the gateway\n%s", o.output("media"))
	}
	if status, text := o.get("http://" + pod.Status.PodIP + ":8080/metrics"); status != 200 || !strings.Contains(text, "stunner_listener_packets_total{") {
		t.Errorf("metrics: %d %s", status, text)
	}

	config := "/apis/stunner.l7mp.io/v1/namespaces/media/gatewayconfigs/stunner-gatewayconfig"
	clitest.Must(t, o.plane.Merge(config, `{"spec": {"password": "pass-2"}}`))
	netlabtest.Eventually(t, "the new password is right", func() bool { return o.tunnel(pod.Status.PodIP, "pass-2") }, func() string { return o.output("media") })
	clitest.Must(t, o.plane.Merge(config, `{"spec": {"password": "pass-1"}}`))
	netlabtest.Eventually(t, "the first password is right again", func() bool { return o.tunnel(pod.Status.PodIP, "pass-1") }, func() string { return o.output("media") })
	if now := o.awaitReady("udp-gateway", 1)[0]; now.Name != pod.Name || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("Pod %s was restarted", pod.Name)
	}

	o.stop() // the data plane goes on without the operator
	if !o.tunnel(pod.Status.PodIP, "pass-1") {
		t.Errorf("without the operator: %s", o.output("media"))
	}
	o.start(program)
	o.roll()
	last := o.awaitReady("udp-gateway", 1)[0]
	l := o.call(&last, 20, 9300)
	clitest.Must(t, o.plane.Delete("/apis/gateway.networking.k8s.io/v1/namespaces/media/gateways/udp-gateway", -1))
	o.awaitEnding(&last)
	l.goOn()
	if o.kubelet.Pod("media/"+last.Name) == nil {
		t.Error("the Pod has ended before its allocations")
	}
	l.hangUp()
	o.awaitGone(&last)
	o.stop()
	o.legacy(program, objects)
}

// template checks that the container is what STUNner's operator makes, and nothing of Weir's is in it.
func (o *stunnersOperator) template(c *corev1.Container) {
	o.t.Helper()
	variables := map[string]string{}
	for _, e := range c.Env {
		variables[e.Name] = e.Value
	}
	if !reflect.DeepEqual(c.Command, []string{"stunnerd"}) || !reflect.DeepEqual(c.Args, []string{"-w", "--udp-thread-num=16"}) ||
		variables["STUNNER_CONFIG_ORIGIN"] != "http://"+kubelab.NodeAddress+":13478" || variables["STUNNER_NAMESPACE"] != "media" || variables["STUNNER_NAME"] != "udp-gateway" ||
		c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet.Path != "/ready" || c.ReadinessProbe.HTTPGet.Port.IntValue() != 8086 || c.LivenessProbe == nil {
		o.t.Errorf("container %+v", c)
	}
	for _, e := range c.Env {
		if !strings.HasPrefix(e.Name, "STUNNER_") {
			o.t.Errorf("variable %s", e.Name)
		}
	}
}

// legacyPods are those that a user of STUNner's legacy mode makes.
const legacyPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: stunner}
spec:
  selector: {matchLabels: {app: stunner}}
  template:
    metadata: {labels: {app: stunner}}
    spec:
      containers:
      - name: stunnerd
        image: l7mp/stunnerd:latest
        command: [stunnerd]
        args: [-w, -c, "file:///etc/stunnerd/stunnerd.conf", --udp-thread-num=16]
        env: [{name: STUNNER_ADDR, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
        readinessProbe: {httpGet: {path: /ready, port: 8086}}
        volumeMounts: [{name: config, mountPath: /etc/stunnerd}]
      volumes: [{name: config, configMap: {name: stunnerd-config}}]
`

// legacy runs the gateway from the ConfigMap of STUNner's legacy mode, and compares that with the one that Weir's operator makes in its place.
func (o *stunnersOperator) legacy(program string, objects []byte) {
	o.t.Helper()
	o.start(program, "--dataplane-mode", "legacy")
	clitest.Must(o.t, o.plane.Apply("media", objects, false))
	listens := func() map[string]any { // the configuration, once it has a listener and a cluster
		var m corev1.ConfigMap
		var config map[string]any
		if o.plane.Get("/api/v1/namespaces/media/configmaps/stunnerd-config", &m) != nil || json.Unmarshal([]byte(m.Data["stunnerd.conf"]), &config) != nil {
			return nil
		}
		if all, _ := config["listeners"].([]any); len(all) != 2 {
			return nil
		}
		if all, _ := config["clusters"].([]any); len(all) != 1 {
			return nil
		}
		return config
	}
	var theirs map[string]any
	netlabtest.Eventually(o.t, "the ConfigMap has the configuration", func() bool { theirs = listens(); return theirs != nil })
	clitest.Must(o.t, o.plane.Apply("media", []byte(legacyPods), false))
	var address string
	netlabtest.Eventually(o.t, "the Pod is ready", func() bool {
		for _, pod := range o.pods("media") {
			if isReady(&pod) && pod.DeletionTimestamp == nil {
				address = pod.Status.PodIP
				return true
			}
		}
		return false
	}, func() string { return o.output("media") })
	if !o.tunnel(address, "pass-1") {
		o.t.Errorf("legacy mode: no datagram through the gateway\n%s", o.output("media"))
	}

	o.stop()
	clitest.Must(o.t, o.plane.Delete("/api/v1/namespaces/media/configmaps/stunnerd-config", 0))
	own := exec.Command(o.weir, "operator", "--kubeconfig", o.plane.Kubeconfig(), "--controllers", "turn", "--turn-controller", "stunner.l7mp.io/gateway-operator", "--dataplane-mode", "legacy",
		"--discovery", kubelab.NodeAddress+":13478", "--admin", "unix:"+filepath.Join(o.t.TempDir(), "admin"))
	own.Stdout, own.Stderr = o.log, o.log
	clitest.Must(o.t, o.node.Start(own))
	defer func() {
		_ = own.Process.Kill()
		_ = own.Wait() // killed
	}()
	var ours map[string]any
	netlabtest.Eventually(o.t, "Weir's operator makes the ConfigMap again", func() bool { ours = listens(); return ours != nil })
	for _, cluster := range theirs["clusters"].([]any) {
		delete(cluster.(map[string]any), "protocol") // UDP, the default
	}
	for _, key := range []string{"version", "auth", "listeners", "clusters"} {
		if !reflect.DeepEqual(ours[key], theirs[key]) {
			o.t.Errorf("%s of the ConfigMap: %v, STUNner's operator has %v", key, ours[key], theirs[key])
		}
	}
}
