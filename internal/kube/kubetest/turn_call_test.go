package kubetest_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// browse is a WebRTC call of a browser, with the ICE configuration that the authentication service gives its application, to a media server behind
// the Gateway: over each listener of the Gateway.
func (c *turnCluster) browse() {
	c.t.Helper()
	netlabtest.Tools(c.t, "chromium")
	// A page that may not use the camera has the address of the default route only.
	if out, err := c.client.Exec(c.t.Context(), "ip", "route", "add", "default", "via", kubelab.NodeAddress); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	status, text := c.ask("/ice?service=turn&namespace=media&gateway=udp-gateway&iceTransportPolicy=relay&key=" + authKey)
	var ice struct {
		Servers []struct {
			Credential, Username string
			URLs                 []string
		} `json:"iceServers"`
	}
	if err := json.Unmarshal([]byte(text), &ice); err != nil || status != http.StatusOK || len(ice.Servers) != 1 || len(ice.Servers[0].URLs) != 2 {
		c.t.Fatalf("ICE configuration: %v %d %s", err, status, text)
	}
	var listener net.Listener
	clitest.Must(c.t, c.client.Do(func() (err error) {
		listener, err = net.Listen("tcp", clientAddress+":0")
		return err
	}))
	browser := clitest.NewBrowser(c.t, listener, c.client.Start, "--disable-features=WebRtcHideLocalIpsWithMdns")
	for _, uri := range ice.Servers[0].URLs {
		_, protocol, _ := strings.Cut(uri, "transport=")
		call := browser.Call(url.Values{"turn": {uri}, "user": {ice.Servers[0].Username}, "password": {ice.Servers[0].Credential}, "callee": {"host"}})
		if call.Error != "" || call.Echo != "echo hello" || call.Packets < 50 || call.Local != "relay" || call.Remote == "relay" || call.Protocol != protocol {
			c.t.Errorf("%s: the page found %+v; want the echo and 50 packets of audio, from a relayed candidate over %s to an address of the media server\n%s", uri, call, protocol, c.output("media"))
		}
	}
	c.idle()
	browser.Close()
}

// idle waits until the Pod of the Gateway has no allocation.
func (c *turnCluster) idle() {
	c.t.Helper()
	address, text := c.awaitReady("udp-gateway", 1)[0].Status.PodIP, ""
	netlabtest.Eventually(c.t, "every allocation is given back", func() bool {
		_, text = c.get("http://" + address + ":8080/metrics")
		return strings.Contains(text, "\nstunner_allocations_active 0\n")
	}, func() string { return text })
}
