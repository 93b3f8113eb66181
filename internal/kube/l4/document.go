package l4

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/weir-lb/weir/internal/kube/l4/policyv1alpha1"
	"github.com/weir-lb/weir/internal/kube/operator"
)

// document is what is written of lb.Spec; a test compiles what is rendered.
type document struct {
	HashKey    string            `json:"hash_key,omitempty"`
	MaglevSize int               `json:"maglev_size,omitempty"`
	Services   []serviceDocument `json:"services"`
	Announce   map[string]any    `json:"announce,omitempty"`
}

type serviceDocument struct {
	Name        string        `json:"name"`
	VIPs        []vipDocument `json:"vips"`
	Mode        string        `json:"mode,omitempty"`
	Tunnel      string        `json:"tunnel,omitempty"`
	Affinity    string        `json:"affinity,omitempty"`
	Sources     []string      `json:"sources,omitempty"`
	CID         any           `json:"cid,omitempty"`
	Timeouts    any           `json:"timeouts,omitempty"`
	NewFlowRate int32         `json:"new_flow_rate,omitempty"`
	Health      any           `json:"health,omitempty"`

	UDPMigration   *bool  `json:"udp_migration,omitempty"`
	Ping           string `json:"ping,omitempty"`
	Generations    int32  `json:"generations,omitempty"`
	GenerationTime string `json:"generation_time,omitempty"`

	Backends []backendDocument `json:"backends,omitempty"`
	// MaglevSize grows with the number of backends: a thousand tables of the default size would take 250 MiB.
	MaglevSize int `json:"maglev_size,omitempty"`
}

// maglevSize is a prime that gives each backend a hundred slots or more, as long as the default size does.
func maglevSize(backends int) int {
	switch {
	case backends <= 40:
		return 4093
	case backends <= 160:
		return 16381
	}
	return 0
}

type vipDocument struct {
	Address  string `json:"address"`
	Protocol string `json:"protocol"`
	Port     int32  `json:"port"`
}

type backendDocument struct {
	Name    string   `json:"name"`
	Address string   `json:"address,omitempty"`
	Port    uint16   `json:"port,omitempty"`
	Weight  int      `json:"weight"`
	Action  string   `json:"action,omitempty"`
	Nodes   []uint32 `json:"nodes,omitempty"`
}

// apply writes the settings of a policy, which may be nil, into a service.
func (d *serviceDocument) apply(s *policyv1alpha1.Settings) {
	if s == nil {
		return
	}
	d.Mode, d.Tunnel, d.NewFlowRate = s.Mode, s.Tunnel, s.NewFlowRate
	d.UDPMigration, d.Ping, d.Generations, d.GenerationTime = s.UDPMigration, s.Ping, s.Generations, string(s.GenerationTime)
	if s.Affinity != "" || s.CID != nil {
		d.Affinity = s.Affinity
	}
	if s.CID != nil {
		without := *s.CID
		without.NodeIDs = nil
		d.CID = snake(&without)
	}
	if s.Timeouts != nil {
		d.Timeouts = snake(s.Timeouts)
	}
	if s.Health != nil {
		d.Health = snake(s.Health)
	}
}

// snake is a part of a policy with the keys of lb.Spec: serverIDLength becomes server_id_length.
func snake(part any) any {
	text, err := json.Marshal(part)
	if err != nil {
		panic(err) // strings and numbers alone
	}
	var plain any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&plain); err != nil {
		panic(err) // it was written above
	}
	return renamed(plain)
}

func renamed(value any) any {
	switch value := value.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, v := range value {
			all[upper.ReplaceAllStringFunc(key, func(word string) string { return "_" + strings.ToLower(word) })] = renamed(v)
		}
		return all
	case []any:
		for i := range value {
			value[i] = renamed(value[i])
		}
	}
	return value
}

// upper finds where a word of a name begins: one capital letter, or all of an abbreviation.
var upper = regexp.MustCompile(`ID|LB|[A-Z]`)

func (d *document) text() []byte {
	if d.Services == nil {
		d.Services = []serviceDocument{} // none is a configuration, too
	}
	text, err := json.Marshal(d) // which is YAML, too, and is read much faster
	if err != nil {
		panic(err) // strings and numbers alone
	}
	return append(text, '\n')
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
