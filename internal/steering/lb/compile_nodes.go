package lb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/steering/cid"
)

// nodesOf returns a backend's owner ids by layout: those that the backend sets for the layout, otherwise its nodes.
func nodesOf(spec *BackendSpec, set *CIDSpec) [][]uint32 {
	if set == nil {
		return nil
	}
	shared := sortedIDs(spec.Nodes)
	nodes := make([][]uint32, len(set.Layouts))
	for i := range set.Layouts {
		if nodes[i] = shared; set.Layouts[i].Nodes != nil {
			nodes[i] = sortedIDs(set.Layouts[i].Nodes[spec.Name])
		}
	}
	return nodes
}

// sortedIDs is a sorted copy, which is never nil.
func sortedIDs(ids []uint32) []uint32 {
	sorted := append([]uint32{}, ids...)
	slices.Sort(sorted)
	return sorted
}

// checkNodes refuses owner ids of a backend that no layout uses or that fit into no layout. owners are those of the backends
// before it. A narrow layout never refers to the wide ids of another one.
func checkNodes(path string, spec *BackendSpec, set *CIDSpec, service *Service, owners map[uint32]string) error {
	path += ".nodes"
	switch {
	case len(spec.Nodes) == 0:
		return nil
	case service.CID == nil:
		return wrong(path, "remove it, or add a cid section to the service", "owner ids mean nothing without CIDs")
	}
	widest := -1
	for i := range set.Layouts {
		if set.Layouts[i].Nodes == nil && (widest < 0 || service.CID.Layouts[i].MaxOwner() > service.CID.Layouts[widest].MaxOwner()) {
			widest = i
		}
	}
	if widest < 0 {
		return wrong(path, "remove it, or remove the nodes of a layout", "each layout has nodes of its own, so these are not used")
	}
	return checkOwners(path, spec.Nodes, widest, &service.CID.Layouts[widest], owners)
}

// layoutNodes checks the nodes that layouts have of their own.
func (c *compiler) layoutNodes(path string, spec *ServiceSpec, service *Service, names map[string]int) {
	if service.CID == nil {
		return
	}
	for i := range spec.CID.Layouts {
		at, nodes := fmt.Sprintf("%s.layouts[%d].nodes", path, i), spec.CID.Layouts[i].Nodes
		if nodes != nil && len(nodes) == 0 {
			c.keep(wrong(at, "write BACKEND: [IDS], or remove it to use the nodes of the backends", "there is no owner id"))
		}
		owners := map[uint32]string{}
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			if _, ok := names[name]; !ok {
				c.keep(wrong(at+"."+name, "write the name of a backend ("+someNames(names)+"), or remove it", "the service has no backend %q", name))
				continue
			}
			if spec.Backends[names[name]].Action != ActForward {
				c.keep(wrong(at+"."+name, "remove it", "backend %q stands for no server, so it has no sessions", name))
				continue
			}
			if spec.Backends[names[name]].Host != "" {
				c.keep(wrong(at+"."+name, "write address instead of host in the backend", "backend %q has a host, which may have several addresses, and owner ids belong to one", name))
				continue
			}
			c.keep(checkOwners(at+"."+name, nodes[name], i, &service.CID.Layouts[i], owners))
		}
	}
}

// someNames lists the first five names in order.
func someNames(names map[string]int) string {
	if len(names) == 0 {
		return "there is none"
	}
	all := slices.Sorted(maps.Keys(names))
	text := strings.Join(all[:min(len(all), 5)], ", ")
	if len(all) > 5 {
		text += fmt.Sprintf(" and %d more", len(all)-5)
	}
	return text
}

// checkOwners refuses owner ids that do not fit into a layout or that another backend has, and records the others.
func checkOwners(path string, ids []uint32, index int, layout *cid.Layout, owners map[uint32]string) error {
	if len(ids) > MaxNodes {
		return wrong(path, "use fewer, larger shards", "%d owner ids, at most %d", len(ids), MaxNodes)
	}
	for i, id := range ids {
		at := fmt.Sprintf("%s[%d]", path, i)
		if other, ok := owners[id]; ok {
			return wrong(at, "give each owner id to one backend", "owner id %d belongs to %s", id, other)
		}
		owners[id] = at
		if limit := layout.MaxOwner(); id > limit {
			return wrong(at, fmt.Sprintf("write at most %d, or widen the owner field", limit), "owner id %d does not fit in layout %d", id, index)
		}
	}
	return nil
}
