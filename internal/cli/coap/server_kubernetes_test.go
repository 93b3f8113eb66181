package coap

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/kube/pods"
)

// The environment of Californium's manifests makes a node of a cluster; what is missing is an error with what to do.
func TestPodCluster(t *testing.T) {
	const flag = "--k8s-dtls-cluster"
	t.Setenv("KUBECTL_NODE_ID", "")
	if _, err := configured(t, flag, ":5784;:5884;5884"); err == nil || !strings.Contains(err.Error(), "KUBECTL_NODE_ID") {
		t.Errorf("without an ordinal: %v", err)
	}
	t.Setenv("KUBECTL_NODE_ID", "7")
	if _, err := configured(t, flag, ":5784;:5884;5884"); err == nil || !strings.Contains(err.Error(), "0.0.0.0:5884") {
		t.Errorf("bound to loopback without a secret: %v", err)
	}
	t.Setenv(identityVariable, "cid-cluster-manager")
	t.Setenv(secretVariable, "c1BKR285VGdpTlJ2ak1UYg==")
	cfg, err := configured(t, flag, ":5784;:5884;5884")
	if err != nil || cfg.Cluster.Security == nil || !cfg.Cluster.Open() {
		t.Fatalf("%+v, %v", cfg.Cluster, err)
	}
	if want := (cluster.Node{ID: 7, DTLS: ":5784", Management: ":5884"}); cfg.Cluster.Nodes[0] != want || !cfg.Cluster.Discovered {
		t.Errorf("%+v", cfg.Cluster)
	}
}

// A Pod with addresses of both families is searched for at that of the own management address, else at its main one.
func TestPodAddresses(t *testing.T) {
	both := []pods.Pod{{Name: "coap-1", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}}}
	for management, want := range map[string]string{":5884": "10.0.0.2:5884", "0.0.0.0:5884": "10.0.0.2:5884", "[::]:5884": "[fd00::2]:5884"} {
		p := podCluster{own: cluster.Node{Management: management}, port: 5884}
		if got := fmt.Sprint(p.addresses(both)); got != "["+want+"]" {
			t.Errorf("%s: %s, want %s", management, got, want)
		}
	}
}
