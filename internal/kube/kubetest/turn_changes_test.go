package kubetest_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// certificate is a Secret with a certificate of a serial number.
func certificate(serial int64) (string, error) {
	return kubelab.TLSSecret("turn-cert", &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"turn.example"}})
}

// serial is that of the certificate which a Pod shows to a new client; 0: none.
func (c *turnCluster) serial(address string) (serial int64) {
	_ = c.client.Do(func() error { // it may not listen yet
		connection, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address+":5349", &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		serial = connection.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
		return connection.Close()
	})
	return serial
}

// rotate adds a listener over TLS and changes its certificate, to a right one and a wrong one. No Pod restarts.
func (c *turnCluster) rotate() {
	c.t.Helper()
	pod := c.awaitReady("udp-gateway", 1)[0]
	clitest.Must(c.t, c.plane.Merge("/apis/gateway.networking.k8s.io/v1/namespaces/media/gateways/udp-gateway", `{"spec": {"listeners": [
		{"name": "udp-listener", "port": 3478, "protocol": "TURN-UDP"}, {"name": "tcp-listener", "port": 3478, "protocol": "TURN-TCP"},
		{"name": "tls-listener", "port": 5349, "protocol": "TURN-TLS", "tls": {"mode": "Terminate", "certificateRefs": [{"name": "turn-cert"}]}}]}}`))
	await := func(status, reason string) {
		c.t.Helper()
		netlabtest.Eventually(c.t, "the listener over TLS has ResolvedRefs="+status, func() bool {
			g := c.gateway("udp-gateway")
			return len(g.Status.Listeners) == 3 && is(g.Status.Listeners[2].Conditions, g.Generation, "ResolvedRefs", status, reason)
		}, func() string { return c.output("weir-system") })
	}
	shows := func(serial int64) {
		c.t.Helper()
		netlabtest.Eventually(c.t, fmt.Sprintf("the certificate has serial %d", serial), func() bool { return c.serial(pod.Status.PodIP) == serial }, func() string { return c.output("media") })
	}
	await("False", "InvalidCertificateRef")
	for _, serial := range []int64{1001, 1002} {
		secret, err := certificate(serial)
		clitest.Must(c.t, err)
		clitest.Must(c.t, c.plane.Apply("media", []byte(secret), false))
		await("True", "ResolvedRefs")
		shows(serial)
	}
	clitest.Must(c.t, c.plane.Merge("/api/v1/namespaces/media/secrets/turn-cert", `{"data": {"tls.crt": "bm9uc2Vuc2U="}}`))
	await("False", "InvalidCertificateRef")
	shows(1002)
	if out := c.cat(fmt.Sprintf("turns://user-1:pass-1@%s:5349?transport=tcp", pod.Status.PodIP)); !strings.Contains(out, "through the gateway") {
		c.t.Errorf("over TLS: %s", out)
	}
	if now := c.awaitReady("udp-gateway", 1)[0]; now.Name != pod.Name || now.Status.ContainerStatuses[0].RestartCount != 0 {
		c.t.Errorf("Pod %s was restarted", pod.Name)
	}
}

// alone kills the process of a gateway while its Pod does not reach the operator: it begins again with the last configuration, keys included.
func (c *turnCluster) alone() {
	c.t.Helper()
	pod := c.awaitReady("udp-gateway", 1)[0]
	running := c.kubelet.Pod("media/" + pod.Name)
	route := func(verb string) {
		c.t.Helper()
		if out, err := running.Slot.Host.Exec(c.t.Context(), "ip", "route", verb, "blackhole", operatorPod); err != nil {
			c.t.Fatalf("%v: %s", err, out)
		}
	}
	route("add")
	if running.Slot.Host.Do(func() error {
		connection, err := net.DialTimeout("tcp", operatorPod+":13478", 5*time.Second)
		if err == nil {
			_ = connection.Close() // it should not be there
		}
		return err
	}) == nil {
		c.t.Error("the Pod still reaches the operator")
	}
	clitest.Must(c.t, running.Kill())
	netlabtest.Eventually(c.t, "the gateway serves again", func() bool {
		now := c.ready("udp-gateway")
		return len(now) == 1 && now[0].Name == pod.Name && now[0].Status.ContainerStatuses[0].RestartCount == pod.Status.ContainerStatuses[0].RestartCount+1
	}, func() string { return c.output("media") })
	if out := c.cat(fmt.Sprintf("turn://user-1:pass-1@%s:3478", pod.Status.PodIP)); !strings.Contains(out, "through the gateway") {
		c.t.Errorf("without the operator: %s\n%s", out, c.output("media"))
	}
	if serial := c.serial(pod.Status.PodIP); serial != 1002 {
		c.t.Errorf("without the operator the certificate has serial %d", serial)
	}
	route("del")
}

// wrong makes the GatewayConfig wrong: everything goes on, and every object says why nothing changes.
func (c *turnCluster) wrong() {
	c.t.Helper()
	pod := c.awaitReady("udp-gateway", 1)[0]
	config := "/apis/stunner.l7mp.io/v1/namespaces/media/gatewayconfigs/stunner-gatewayconfig"
	clitest.Must(c.t, c.plane.Merge(config, `{"spec": {"authType": "ephemeral"}}`))
	c.awaitProgrammed("udp-gateway", "False", "Invalid")
	var class gatewayv1.GatewayClass
	clitest.Must(c.t, c.plane.Get("/apis/gateway.networking.k8s.io/v1/gatewayclasses/stunner-gatewayclass", &class))
	if !is(class.Status.Conditions, class.Generation, "Accepted", "False", "InvalidParameters") {
		c.t.Errorf("class: %+v", class.Status.Conditions)
	}
	c.restartOperator() // it has no memory of what was right
	// Else it leads, and writes, only once the Lease of the one that was killed is over, after 15 s: layer4 kills one, too, and the step after that waits.
	clitest.Must(c.t, c.plane.Delete("/apis/coordination.k8s.io/v1/namespaces/weir-system/leases/"+operator.Name, 0))
	c.awaitProgrammed("udp-gateway", "False", "Invalid")
	if out := c.cat(fmt.Sprintf("turn://user-1:pass-1@%s:3478", pod.Status.PodIP)); !strings.Contains(out, "through the gateway") {
		c.t.Errorf("while the configuration is wrong: %s", out)
	}
	netlabtest.Eventually(c.t, "an event says why", func() bool {
		var events eventsv1.EventList
		clitest.Must(c.t, c.plane.Get("/apis/events.k8s.io/v1/namespaces/media/events", &events))
		for i := range events.Items {
			if e := &events.Items[i]; e.Regarding.Name == "udp-gateway" && e.Reason == "Invalid" && strings.Contains(e.Note, "there is no secret") {
				return true
			}
		}
		return false
	})
	clitest.Must(c.t, c.plane.Merge(config, `{"spec": {"authType": "static", "password": "pass-2"}}`))
	c.awaitProgrammed("udp-gateway", "True", "Programmed")
	netlabtest.Eventually(c.t, "the new password is right", func() bool {
		return strings.Contains(c.cat(fmt.Sprintf("turn://user-1:pass-2@%s:3478", pod.Status.PodIP)), "through the gateway")
	})
	if now := c.awaitReady("udp-gateway", 1)[0]; now.Name != pod.Name {
		c.t.Errorf("Pod %s was replaced by %s", pod.Name, now.Name)
	}
}

// operator is its Pod.
func (c *turnCluster) operator() *corev1.Pod {
	pods := c.pods("weir-system")
	at := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Labels["app.kubernetes.io/name"] == "weir-operator" })
	if at < 0 || len(pods[at].Status.ContainerStatuses) != 1 {
		return nil
	}
	return &pods[at]
}

// restartOperator kills the operator with SIGKILL; its Pod starts it again.
func (c *turnCluster) restartOperator() {
	c.t.Helper()
	pod := c.operator()
	clitest.Must(c.t, c.kubelet.Pod("weir-system/"+pod.Name).Kill())
	netlabtest.Eventually(c.t, "the operator writes again", func() bool {
		now := c.operator()
		return now != nil && now.Status.ContainerStatuses[0].RestartCount > pod.Status.ContainerStatuses[0].RestartCount && now.Status.ContainerStatuses[0].Ready
	}, func() string { return c.output("weir-system") })
}

// remove deletes the Gateway: what was made for it goes, and the route says so.
func (c *turnCluster) remove() {
	c.t.Helper()
	clitest.Must(c.t, c.plane.Delete("/apis/gateway.networking.k8s.io/v1/namespaces/media/gateways/udp-gateway", -1))
	netlabtest.Eventually(c.t, "Deployment, Service and Pods are gone", func() bool {
		var d appsv1.DeploymentList
		clitest.Must(c.t, c.plane.Get("/apis/apps/v1/namespaces/media/deployments", &d))
		service := c.plane.Get("/api/v1/namespaces/media/services/udp-gateway", nil)
		return len(d.Items) == 0 && len(c.pods("media")) == 0 && service != nil && strings.Contains(service.Error(), "404")
	}, func() string { return c.output("media") })
}
