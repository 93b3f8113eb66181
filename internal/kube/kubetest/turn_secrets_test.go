package kubetest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const sharedSecret = "shared-secret-of-the-gateways"

// keepsSecrets changes to ephemeral authentication at the highest log level, gives out and uses credentials, and looks for every secret that was in
// use in all that the operator, the gateways and the load balancer show: logs, status, metrics, command lines, environments, events, and the objects that they write.
func (c *turnCluster) keepsSecrets() {
	c.t.Helper()
	config := "/apis/stunner.l7mp.io/v1/namespaces/media/gatewayconfigs/stunner-gatewayconfig"
	clitest.Must(c.t, c.plane.Merge(config, `{"spec": {"authType": "ephemeral", "sharedSecret": "`+sharedSecret+`", "logLevel": "all:TRACE"}}`))
	var issued struct{ Username, Password string }
	netlabtest.Eventually(c.t, "ephemeral credentials are given out, and taken", func() bool {
		status, text := c.ask(askedGateway + authKey + "&username=alice")
		if status != http.StatusOK || json.Unmarshal([]byte(text), &issued) != nil || !strings.HasSuffix(issued.Username, ":alice") {
			return false
		}
		pod := c.awaitReady("udp-gateway", 1)[0]
		return strings.Contains(c.cat("turn:"+pod.Status.PodIP, "--user", issued.Username, "--password", issued.Password), "through the gateway")
	}, func() string { return c.output("media") })
	c.cat("turn:"+c.awaitReady("udp-gateway", 1)[0].Status.PodIP, "--user", issued.Username, "--password", "wrong")

	var secret corev1.Secret
	clitest.Must(c.t, c.plane.Get("/api/v1/namespaces/media/secrets/turn-cert", &secret))
	secrets := map[string]string{
		"the first password": "pass-1", "the second password": "pass-2", "the shared secret": sharedSecret, "the shared secret, in base64": base64.StdEncoding.EncodeToString([]byte(sharedSecret)),
		"a password that was given out": issued.Password, "the key of the authentication service": authKey, "the token of the load balancers": l4Token,
		"the key of the certificate": base64.StdEncoding.EncodeToString(secret.Data["tls.key"])[:64], "the PEM of the key": strings.Split(string(secret.Data["tls.key"]), "\n")[1],
	}
	c.balancer("") // its Pod is one of those that are looked at
	for place, text := range c.shown() {
		if len(text) == 0 {
			c.t.Errorf("%s is empty", place)
		}
		for what, value := range secrets {
			if at := strings.Index(text, value); at >= 0 {
				c.t.Errorf("%s: %s is in it: …%s", place, what, text[max(0, at-200):min(len(text), at+len(value)+20)])
			}
		}
	}
}

// shown is what the Pods of the operator, the gateways and the load balancer show, and what they have written into the cluster, by where it is.
func (c *turnCluster) shown() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for _, namespace := range []string{"media", "weir-system"} {
		for _, pod := range c.pods(namespace) {
			name := namespace + "/" + pod.Name
			r := c.kubelet.Pod(name)
			if r == nil {
				continue
			}
			all["log of "+name] = r.Output()
			pids, err := r.Slot.Host.Exec(c.t.Context(), "ip", "netns", "pids", r.Slot.Host.NetNS())
			clitest.Must(c.t, err)
			sockets := 0
			for _, pid := range strings.Fields(pids) {
				for _, file := range []string{"cmdline", "environ"} {
					text, err := os.ReadFile(filepath.Join("/proc", pid, file))
					if err == nil { // one of a probe may have ended
						all[fmt.Sprintf("%s of process %s of %s", file, pid, name)] = string(text) + "\n"
					}
				}
				if root, err := os.Readlink("/proc/" + pid + "/root"); err != nil || root == "/" || sockets > 0 { // not the container's
					continue
				}
				found, err := filepath.Glob("/proc/" + pid + "/root/run/weir/*.sock")
				clitest.Must(c.t, err)
				for _, socket := range found {
					for _, page := range []string{"/status", "/metrics", "/readyz"} {
						all[page+" of "+name] = clitest.HTTPGet(c.t, socket, page)
					}
					sockets++
				}
			}
			if sockets == 0 {
				c.t.Errorf("%s has no admin API", name)
			}
		}
	}
	gateway := c.awaitReady("udp-gateway", 1)[0].Status.PodIP
	for _, page := range []string{":8086/status", ":8086/ready", ":8080/metrics"} {
		_, all[page+" of a gateway"] = c.get("http://" + gateway + page)
	}
	for _, list := range []string{
		"/apis/gateway.networking.k8s.io/v1/gatewayclasses", "/apis/gateway.networking.k8s.io/v1/namespaces/media/gateways", "/apis/stunner.l7mp.io/v1/namespaces/media/udproutes",
		"/apis/events.k8s.io/v1/events", "/apis/apps/v1/deployments", "/api/v1/pods", "/api/v1/services", "/api/v1/configmaps",
	} {
		var objects json.RawMessage
		clitest.Must(c.t, c.plane.Get(list, &objects))
		all[list] = string(objects)
	}
	return all
}
