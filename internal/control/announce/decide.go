package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Phase is what the node as a whole does.
type Phase uint8

const (
	Serving Phase = iota
	Leaving       // it will withdraw soon: peers should prefer others already
	Gone          // it has withdrawn
)

// State is what becomes of one prefix.
type State uint8

const (
	Withdrawn State = iota
	Announced
	Retiring // announced as less preferred, because it is withdrawn soon
)

func (s State) String() string {
	return [...]string{Withdrawn: "withdrawn", Announced: "announced", Retiring: "retiring"}[s]
}

// Node is what a decision needs to know of this machine.
type Node struct {
	Phase    Phase
	Detached string // why the data path does not forward; empty: it does
	// Incomplete is why this balancer, just started, must not take addresses yet; empty: it may.
	Incomplete string
}

// Route is the decision on one prefix.
type Route struct {
	Prefix   netip.Prefix
	State    State
	Reason   string   // why it is withdrawn or retiring; empty: it is announced
	Services []string // behind it, ordered
}

func (r Route) equal(other Route) bool {
	return r.Prefix == other.Prefix && r.State == other.State && r.Reason == other.Reason && slices.Equal(r.Services, other.Services)
}

// Decide returns the prefixes of the announced services, ordered, each with what becomes of it. Addresses within an aggregate are replaced by it.
func Decide(snapshot *lb.Snapshot, node Node) []Route {
	if snapshot == nil || snapshot.Announce == nil {
		return nil
	}
	settings := snapshot.Announce
	behind := map[netip.Prefix][]*lb.Service{}
	for _, service := range snapshot.Services {
		if !settings.Announces(service) {
			continue
		}
		for _, address := range service.Addresses() {
			prefix := aggregateOf(address, settings.Aggregates)
			if !slices.Contains(behind[prefix], service) {
				behind[prefix] = append(behind[prefix], service)
			}
		}
	}
	routes := make([]Route, 0, len(behind))
	for prefix, services := range behind {
		route := Route{Prefix: prefix}
		for _, service := range services {
			route.Services = append(route.Services, service.Name)
		}
		route.State, route.Reason = state(services, settings, node)
		routes = append(routes, route)
	}
	slices.SortFunc(routes, func(a, b Route) int { return a.Prefix.Compare(b.Prefix) })
	return routes
}

// aggregateOf returns the most specific aggregate that an address is in, or the address.
func aggregateOf(address netip.Prefix, aggregates []netip.Prefix) netip.Prefix {
	best, found := address, false
	for _, a := range aggregates {
		if lb.Within(address, a) && (!found || a.Bits() > best.Bits()) {
			best, found = a, true
		}
	}
	return best
}

func state(services []*lb.Service, settings *lb.Announce, node Node) (State, string) {
	switch {
	case node.Detached != "":
		return Withdrawn, node.Detached
	case node.Incomplete != "":
		return Withdrawn, node.Incomplete
	case node.Phase == Gone:
		return Withdrawn, "this balancer is withdrawn"
	}
	var short []string
	for _, service := range services {
		if n := service.Healthy(); n < settings.MinHealthy {
			short = append(short, fmt.Sprintf("service %s has %d healthy backends of %d needed", service.Name, n, settings.MinHealthy))
		}
	}
	if len(short) == len(services) || settings.RequireAll && len(short) > 0 {
		return Withdrawn, strings.Join(short[:min(len(short), maxReasons)], "; ")
	}
	if node.Phase == Leaving {
		return Retiring, "this balancer withdraws soon"
	}
	return Announced, ""
}

// maxReasons bounds the services that a reason names.
const maxReasons = 4
