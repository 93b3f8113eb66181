package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// Kinds of files, by what reads them.
const (
	kindBalancer   = "load balancer"
	kindGateway    = "TURN gateway"
	kindSTUNner    = "STUNner"
	kindNode       = "CoAP node"
	kindScenarios  = "SNAT scenarios"
	kindKubernetes = "Kubernetes manifest"
)

// isManifest looks for the two keys that every Kubernetes object begins with; a manifest may hold several documents.
func isManifest(text []byte) bool {
	return regexp.MustCompile(`(?m)^apiVersion:\s*\S`).Match(text) && regexp.MustCompile(`(?m)^kind:\s*\S`).Match(text)
}

// kindOf detects the kind of a file by its keys: the kind that knows the largest number of them, and the load balancer of equal ones.
func kindOf(text []byte) string {
	keys := config.Keys(text)
	switch {
	case stunnerd.Recognize(keys):
		return kindSTUNner
	case isManifest(text):
		return kindKubernetes
	case slices.Contains(keys, "services"):
		return kindBalancer
	case slices.Contains(keys, "listeners"):
		return kindGateway
	}
	best, count := kindBalancer, 0
	for _, kind := range []struct {
		name  string
		known []string
	}{
		{kindBalancer, config.Known[lb.Spec]()},
		{kindGateway, config.Known[gateway.Config]()},
		{kindNode, config.Known[node.Config]()},
		{kindScenarios, config.Known[snat.File]()},
	} {
		n := 0
		for _, key := range keys {
			if slices.Contains(kind.known, key) {
				n++
			}
		}
		if n > count {
			best, count = kind.name, n
		}
	}
	return best
}

// checkNode checks a file of weir coap server as it does, and says what it would listen on.
func checkNode(path string, text []byte) (string, error) {
	cfg, document, err := config.Decode[node.Config](path, text)
	if err != nil {
		return "", err
	}
	if err := cfg.Validate(); err != nil {
		return "", document.Locate(err)
	}
	if _, err := node.LoadCredentials(cfg.PSKFile, true); err != nil {
		return "", document.Errorf("psk_file", "%v", err)
	}
	nodes := 0
	if cfg.Cluster != nil {
		nodes = len(cfg.Cluster.Nodes)
	}
	return fmt.Sprintf("CoAP on %s, DTLS on %s, %d nodes in the cluster", orNone(cfg.Listen), orNone(cfg.DTLS), nodes), nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "no address of its own"
	}
	return strings.Join(list, ", ")
}
