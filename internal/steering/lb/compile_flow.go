package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Bounds of the index of flow rules, so that a bad file causes an error and does not exhaust the machine.
const (
	maxIndexBytes = 64 << 20
	maxPlaces     = 32 // different places of headers that rules compare bytes at
)

// flows compiles a service's flow rules.
func (c *compiler) flows(path string, spec *ServiceSpec, service *Service) error {
	if len(spec.Flows) == 0 {
		return nil
	}
	path += ".flows"
	switch {
	case service.Mode != Mark:
		return wrong(path, "write mode: mark, or use vips", "mode %s finds its packets by VIP only", service.Mode)
	case !c.caps.Flows:
		return c.refuse(path, "use vips", "has no flow rules")
	case len(c.rules)+len(spec.Flows) > MaxFlowRules:
		return wrong(path, "join rules: each takes several prefixes and port ranges", "more than %d flow rules in all", MaxFlowRules)
	}
	names := map[string]int{}
	for i := range spec.Flows {
		at := fmt.Sprintf("%s[%d]", path, i)
		if err := checkName(at, "flow rule", spec.Flows[i].Name); err != nil {
			return err
		}
		if other, ok := names[spec.Flows[i].Name]; ok {
			return wrong(at+".name", "give each flow rule of a service its own name", "%q is the name of flows[%d] too", spec.Flows[i].Name, other)
		}
		names[spec.Flows[i].Name] = i
		rule, err := c.rule(at, &spec.Flows[i])
		if err != nil {
			return err
		}
		rule.Service = service
		service.Rules, c.rules = append(service.Rules, rule), append(c.rules, rule)
	}
	return nil
}

func (c *compiler) rule(path string, spec *FlowSpec) (*FlowRule, error) {
	rule := &FlowRule{Name: spec.Name, Priority: spec.Priority, Match: slices.Clone(spec.Match)}
	for i, p := range spec.Protocols {
		at := fmt.Sprintf("%s.protocols[%d]", path, i)
		switch {
		case slices.Contains(rule.Protocols, uint8(p)):
			return nil, wrong(at, "remove one of them", "%s is there twice", p)
		case !slices.Contains(c.caps.Protocols, uint8(p)):
			return nil, c.refuse(at, "remove it", "cannot balance %s", p)
		}
		rule.Protocols = append(rule.Protocols, uint8(p))
	}
	slices.Sort(rule.Protocols)
	var err error
	if rule.Destinations, err = c.prefixes(path+".destinations", spec.Destinations); err != nil {
		return nil, err
	}
	if rule.Sources, err = c.prefixes(path+".sources", spec.Sources); err != nil {
		return nil, err
	}
	if rule.DestinationPorts, err = portList(path+".destination_ports", spec.DestinationPorts); err != nil {
		return nil, err
	}
	if rule.SourcePorts, err = portList(path+".source_ports", spec.SourcePorts); err != nil {
		return nil, err
	}
	if !familiesMeet(rule.Destinations, rule.Sources) {
		return nil, wrong(path+".sources", "write both lists with the same family, or leave one out", "no packet has a source and a destination of these families")
	}
	if err := c.matches(path+".match", rule); err != nil {
		return nil, err
	}
	if spec.UDPEncap != 0 {
		switch {
		case spec.UDPEncap < 1 || spec.UDPEncap > 65535:
			return nil, wrong(path+".udp_encap", "write 1 to 65535, such as 9899", "%d is out of range", spec.UDPEncap)
		case len(rule.Protocols) != 1 || rule.Protocols[0] != SCTP:
			return nil, wrong(path+".udp_encap", "write protocols: [sctp]", "only SCTP comes inside of UDP")
		}
		rule.UDPEncap = uint16(spec.UDPEncap)
	}
	return rule, nil
}

func (c *compiler) prefixes(path string, list []AddressPrefix) ([]netip.Prefix, error) {
	if len(list) > MaxRulePrefixes {
		return nil, wrong(path, "use shorter prefixes, or several flow rules", "%d prefixes, at most %d", len(list), MaxRulePrefixes)
	}
	var out []netip.Prefix
	for i, p := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case p.Addr().Is4() && !c.caps.IPv4, p.Addr().Is6() && !c.caps.IPv6:
			return nil, c.refuse(at, "use the other family", "cannot serve %s", p.Prefix)
		case slices.Contains(out, p.Prefix):
			return nil, wrong(at, "remove one of them", "%s is there twice", p.Prefix)
		}
		out = append(out, p.Prefix)
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	return out, nil
}

// familiesMeet reports whether a packet can have a destination of one list and a source of the other.
func familiesMeet(a, b []netip.Prefix) bool {
	for _, is6 := range []bool{false, true} {
		has := func(p netip.Prefix) bool { return p.Addr().Is6() == is6 }
		if (len(a) == 0 || slices.ContainsFunc(a, has)) && (len(b) == 0 || slices.ContainsFunc(b, has)) {
			return true
		}
	}
	return false
}

func portList(path string, list []PortRange) ([]PortRange, error) {
	if len(list) > MaxRulePorts {
		return nil, wrong(path, "join them to ranges, or write several flow rules", "%d port ranges, at most %d", len(list), MaxRulePorts)
	}
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b PortRange) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	return out, nil
}

// matches checks a rule's comparisons against its protocols, each other, and those of all rules.
func (c *compiler) matches(path string, rule *FlowRule) error {
	if len(rule.Match) > MaxRuleMatches {
		return wrong(path, "compare 2 or 4 bytes at once", "%d comparisons, at most %d", len(rule.Match), MaxRuleMatches)
	}
	for i, m := range rule.Match {
		at := fmt.Sprintf("%s[%d]", path, i)
		if len(rule.Protocols) > 0 && !slices.Contains(rule.Protocols, m.Protocol) {
			return wrong(at, "remove it, or add the protocol", "the rule takes no %s", Protocol(m.Protocol))
		}
		for j, other := range rule.Match[:i] {
			if other.place() == m.place() {
				return wrong(at, "remove one of them; a rule matches when all comparisons hold", "the same bytes as match[%d]", j)
			}
		}
		if !slices.Contains(c.places, m.place()) {
			c.places = append(c.places, m.place())
		}
		if len(c.places) > maxPlaces {
			return wrong(at, "compare the same bytes in several rules, with other values", "flow rules look at more than %d different places of headers", maxPlaces)
		}
	}
	return nil
}

// ruleOrder puts the rules into the order in which they win and indexes them.
func (c *compiler) ruleOrder(snapshot *Snapshot) error {
	slices.SortStableFunc(c.rules, func(a, b *FlowRule) int { return cmp.Compare(b.Priority, a.Priority) })
	for i, rule := range c.rules {
		rule.Index = i
	}
	snapshot.Rules = c.rules
	index, bytes := newRuleIndex(c.rules, snapshot.PromiscuousPing)
	if bytes > maxIndexBytes {
		return wrong("services", "use fewer different prefixes and port ranges in flow rules", "the index of the flow rules would take %d MiB, at most %d", bytes>>20, maxIndexBytes>>20)
	}
	snapshot.rules = index
	return nil
}
