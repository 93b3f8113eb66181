package lb

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ClusterSpec says that the backends are nodes of a CoAP cluster, which are queried for the owner ids of the backends and for which of
// them drain. The queried nodes have the key admin.
type ClusterSpec struct {
	TokenFile string        `yaml:"token_file" default:"$WEIR_ADMIN_TOKEN"`    // file with the token that admin addresses HOST:PORT need
	Every     time.Duration `yaml:"every" default:"500ms" range:"100ms to 1m"` // time between two queries of a node
	Timeout   time.Duration `yaml:"timeout" default:"2s" range:"10ms to 30s"`  // of a query
	OldAfter  time.Duration `yaml:"old_after" default:"10s" range:"1s to 1h"`  // no node has answered for so long: the view is reported as old
}

// MaxClusterNodes bounds the backends of a service that are queried: node ids have one byte.
const MaxClusterNodes = 255

// Cluster is a ClusterSpec, compiled.
type Cluster struct {
	TokenFile                string // empty: $WEIR_ADMIN_TOKEN
	Every, Timeout, OldAfter time.Duration
}

// cluster compiles the cluster of a service, whose affinity is compiled already.
func (c *compiler) cluster(path string, spec *ServiceSpec, service *Service) error {
	s := spec.Cluster
	if s == nil {
		for i := range spec.Backends {
			if spec.Backends[i].Admin != "" {
				return wrong(fmt.Sprintf("%s.backends[%d].admin", path, i), "add cluster: {} to the service, or remove it", "the service follows no cluster")
			}
		}
		return nil
	}
	path += ".cluster"
	if service.CID == nil {
		return wrong(path, "add cid: {protocols: [dtls12], layouts: [{length: BYTES, owner: {offset: 0, bits: 8}}]}, or remove it", "the owners of a cluster's sessions mean nothing without CIDs")
	}
	layout := &service.CID.Layouts[0]
	switch {
	case len(service.CID.Layouts) > 1 || layout.OwnerOffset != 0 || layout.OwnerBits != 8 || spec.CID.Layouts[0].MaskKey != nil:
		return wrong(path, "write one layout with owner: {offset: 0, bits: 8}, or remove it and write nodes", "nodes of a CoAP cluster have their node id in the first byte of connection ids, and nothing else is learned")
	case spec.CID.Layouts[0].Nodes != nil:
		return wrong(path, "remove the nodes of the layout, or remove cluster", "the owner ids come from the cluster, and the layout has nodes of its own")
	}
	out := &Cluster{
		TokenFile: s.TokenFile, Every: cmp.Or(s.Every, 500*time.Millisecond), Timeout: cmp.Or(s.Timeout, 2*time.Second),
		OldAfter: cmp.Or(s.OldAfter, 10*time.Second),
	}
	switch {
	case out.Every < 100*time.Millisecond || out.Every > time.Minute:
		return wrong(path+".every", "write 100ms to 1m, such as 500ms", "%s is out of range", out.Every)
	case out.Timeout < 10*time.Millisecond || out.Timeout > 30*time.Second:
		return wrong(path+".timeout", "write 10ms to 30s, such as 2s", "%s is out of range", out.Timeout)
	case out.OldAfter < time.Second || out.OldAfter > time.Hour:
		return wrong(path+".old_after", "write 1s to 1h, such as 10s", "%s is out of range", out.OldAfter)
	}
	service.Cluster = out
	return nil
}

// queried checks which backends are queried, once all are compiled.
func (c *compiler) queried(path string, spec *ServiceSpec, service *Service) error {
	if service.Cluster == nil {
		return nil
	}
	addresses := map[string]int{}
	for i := range spec.Backends {
		b := &spec.Backends[i]
		if b.Admin == "" {
			continue
		}
		at := fmt.Sprintf("%s.backends[%d]", path, i)
		if !adminAddress(b.Admin) {
			return wrong(at+".admin", "write HOST:PORT or unix:/path", "%q is no admin address", b.Admin)
		}
		if other, ok := addresses[b.Admin]; ok {
			return wrong(at+".admin", "give each node a process of its own", "%s is the admin address of backends[%d] too, so that it is not known which one has which owner ids", b.Admin, other)
		}
		if len(b.Nodes) > 0 {
			return wrong(at+".nodes", "remove nodes; write them without admin only for a node that cannot be queried", "the owner ids of this backend come from the cluster, through admin")
		}
		addresses[b.Admin] = i
		service.Backend(b.Name).Admin = b.Admin
	}
	switch {
	case len(addresses) > MaxClusterNodes:
		return wrong(path+".cluster", "split the service", "%d backends are queried, at most %d", len(addresses), MaxClusterNodes)
	case len(addresses) == 0 && len(spec.Backends) > 0:
		return wrong(path+".cluster", "write admin: HOST:PORT or unix:/path for the backends instead of nodes, or remove cluster", "no backend has an admin address that could be queried")
	}
	c.learned(service)
	return nil
}

// learned gives the backends the owner ids that the cluster has reported. An id that the spec gives to a backend stays there.
func (c *compiler) learned(service *Service) {
	owned := c.overrides.Owners(service.Name)
	taken := map[uint32]bool{}
	for _, b := range service.Backends {
		for _, id := range b.Nodes[0] {
			taken[id] = true
		}
	}
	for _, b := range service.Backends {
		if b.Admin == "" {
			continue
		}
		for _, id := range sortedIDs(owned[b.Name]) {
			if id <= service.CID.Layouts[0].MaxOwner() && !taken[id] {
				taken[id] = true
				b.Nodes[0] = append(b.Nodes[0], id)
			}
		}
	}
}

// adminAddress reports whether text is HOST:PORT or unix:PATH.
func adminAddress(text string) bool {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		return path != ""
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 1 || !visible(text, "/?#@") {
		return false
	}
	host := text[:colon]
	if strings.Contains(host, ":") && (host[0] != '[' || host[len(host)-1] != ']') {
		return false
	}
	port, err := strconv.ParseUint(text[colon+1:], 10, 16)
	return err == nil && port > 0
}
