package check

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/keyerror"
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
	kindOSCORE     = "OSCORE contexts"
	kindPSK        = "PSK file"
	kindKubernetes = "Kubernetes manifest"
)

// isManifest looks for the two keys that every Kubernetes object begins with; a manifest may hold several documents.
func isManifest(text []byte) bool {
	return regexp.MustCompile(`(?m)^apiVersion:\s*\S`).Match(text) && regexp.MustCompile(`(?m)^kind:\s*\S`).Match(text)
}

// isPSK reports whether each line that is not a comment is IDENTITY=KEY, or .FIELD=VALUE of a device store.
func isPSK(text []byte) bool {
	lines := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if name, value, found := strings.Cut(line, "="); !found || name == "" || strings.Trim(value, "=") == "" || strings.ContainsAny(name, " \t{[") {
			return false
		}
		lines++
	}
	return lines > 0
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
	case slices.Contains(keys, "contexts"):
		return kindOSCORE
	case len(keys) == 0 && isPSK(text):
		return kindPSK
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
func checkNode(path string, text []byte) (summary string, warnings []string, err error) {
	cfg, document, err := config.Decode[node.Config](path, text)
	validate := func() error {
		var wrong keyerror.List
		wrong.Add(cfg.Validate())
		wrong.Add(cfg.CheckCredentials())
		return document.Locate(wrong.Err())
	}
	if err != nil {
		return "", nil, document.Also(err, validate)
	}
	if err := validate(); err != nil {
		return "", nil, err
	}
	nodes := 0
	if cfg.Cluster != nil {
		nodes = len(cfg.Cluster.Nodes)
	}
	return fmt.Sprintf("CoAP on %s, DTLS on %s, %d nodes in the cluster", orNone(cfg.Listen), orNone(cfg.DTLS), nodes), document.Warnings(), nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "no address of its own"
	}
	return strings.Join(list, ", ")
}
