package l4

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/weir-lb/weir/internal/kube/operator"
)

// document is what is written of lb.Spec; a test compiles what is rendered.
type document struct {
	Services []serviceDocument `json:"services"`
}

type serviceDocument struct {
	Name     string            `json:"name"`
	VIPs     []vipDocument     `json:"vips"`
	Affinity string            `json:"affinity,omitempty"`
	Backends []backendDocument `json:"backends,omitempty"`
}

type vipDocument struct {
	Address  string `json:"address"`
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
}

type backendDocument struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	Weight  int    `json:"weight"`
	Action  string `json:"action,omitempty"`
}

func (d *document) text() []byte {
	if d.Services == nil {
		d.Services = []serviceDocument{} // none is a configuration, too
	}
	text, err := yaml.Marshal(d)
	if err != nil {
		panic(err) // strings and numbers alone
	}
	return text
}

const maxName = 63 // of services and backends

// name makes a name that the load balancer takes; a long one ends with a digest.
func name(parts ...string) string {
	text := strings.Join(parts, ":")
	if len(text) <= maxName {
		return text
	}
	sum := operator.Digest([]byte(text))[:12]
	return fmt.Sprintf("%s-%s", text[:maxName-len(sum)-1], sum)
}
