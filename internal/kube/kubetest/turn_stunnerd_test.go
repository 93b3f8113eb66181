package kubetest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// peerObjects are a class of Gateways whose Pods run STUNner's own data plane.
const peerObjects = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: peer}
spec:
  controllerName: stunner.l7mp.io/gateway-operator
  parametersRef: {group: stunner.l7mp.io, kind: GatewayConfig, name: peer, namespace: media}
---
apiVersion: stunner.l7mp.io/v1
kind: GatewayConfig
metadata: {name: peer}
spec: {authType: static, userName: user-1, password: pass-0, dataplane: peer}
---
apiVersion: stunner.l7mp.io/v1
kind: Dataplane
metadata: {name: peer}
spec:
  image: l7mp/stunnerd:1.2.1
  command: [/usr/bin/stunnerd-of-stunner]
  args: [-w, --udp-thread-num=2]
  terminationGracePeriodSeconds: 120
  enableMetricsEndpoint: true
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: peer}
spec:
  gatewayClassName: peer
  listeners: [{name: udp, port: 3478, protocol: TURN-UDP}]
---
apiVersion: stunner.l7mp.io/v1
kind: UDPRoute
metadata: {name: peer}
spec:
  parentRefs: [{name: peer}]
  rules: [{backendRefs: [{name: media-server}]}]
`

// install puts a program into the image of the Pods that begin from now on.
func (c *turnCluster) install(program, name string) {
	c.t.Helper()
	if out, err := exec.Command("cp", program, filepath.Join(filepath.Dir(c.weir), name)).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

// stunnerd runs STUNner's own data plane in the Pods of a Gateway: it is ready with the operator's configuration, follows it, and its allocations
// outlive the Gateway.
func (c *turnCluster) stunnerd() {
	c.t.Helper()
	cache, err := os.UserCacheDir()
	clitest.Must(c.t, err)
	program := filepath.Join(cache, "weir", "stunner", "stunnerd") // .ci/deps builds it
	netlabtest.Tools(c.t, program)
	c.install(program, "stunnerd-of-stunner")
	clitest.Must(c.t, c.plane.Apply("media", []byte(peerObjects), false))
	pod := c.awaitReady("peer", 1)[0]
	c.assign("peer", pod.Status.PodIP)
	c.awaitProgrammed("peer", "True", "Programmed")
	clitest.Must(c.t, c.plane.Merge("/apis/stunner.l7mp.io/v1/namespaces/media/gatewayconfigs/peer", `{"spec": {"password": "pass-1"}}`))
	netlabtest.Eventually(c.t, "stunnerd takes the new password", func() bool {
		return strings.Contains(c.cat(fmt.Sprintf("turn://user-1:pass-1@%s:3478", pod.Status.PodIP)), "through the gateway")
	}, func() string { return c.output("media") })
	if status, text := c.get("http://" + pod.Status.PodIP + ":8080/metrics"); status != 200 || !strings.Contains(text, `stunner_listener_packets_total{`) {
		c.t.Errorf("metrics of stunnerd: %d %s", status, text)
	}
	if now := c.awaitReady("peer", 1)[0]; now.Name != pod.Name || now.Status.ContainerStatuses[0].RestartCount != 0 {
		c.t.Errorf("Pod %s was restarted", pod.Name)
	}
	l := c.call(&pod, 20, 9300)
	clitest.Must(c.t, c.plane.Delete("/apis/gateway.networking.k8s.io/v1/namespaces/media/gateways/peer", -1))
	c.awaitEnding(&pod)
	l.goOn()
	if c.kubelet.Pod("media/"+pod.Name) == nil {
		c.t.Error("the Pod has ended before its allocations")
	}
	l.hangUp()
	c.awaitGone(&pod)
}
