package l4

import (
	"maps"
	"net/netip"
	"slices"
)

// Announcement says how load balancers announce the addresses of Gateways and Services.
type Announcement struct {
	Section    map[string]any // announce of the load balancer's configuration, but for aggregates, as encoding/json has it
	Aggregates []netip.Prefix // announced in place of the addresses within them
}

// section is announce in a configuration with these services. nil: there is no address yet, and the load balancer refuses an announcement of nothing. So it
// does an aggregate without an address in it, which is left out.
func (a *Announcement) section(services []serviceDocument) map[string]any {
	if a == nil {
		return nil
	}
	var addresses []netip.Addr
	for i := range services {
		for _, vip := range services[i].VIPs {
			if address, err := netip.ParseAddr(vip.Address); err == nil {
				addresses = append(addresses, address)
			}
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	section := maps.Clone(a.Section)
	var aggregates []string
	for _, prefix := range a.Aggregates {
		if slices.ContainsFunc(addresses, prefix.Contains) {
			aggregates = append(aggregates, prefix.String())
		}
	}
	if len(aggregates) > 0 {
		section["aggregates"] = aggregates
	}
	return section
}
