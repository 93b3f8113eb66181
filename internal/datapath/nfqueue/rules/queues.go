package rules

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// target is a part of the traffic that a service wants to see: a VIP, or a flow rule.
type target struct {
	prefix      netip.Prefix
	protocol    uint8 // 0: any
	first, last uint16
	service     *lb.Service
}

// queues plans the chain of the table mangle.
func (p *Plan) queues(snapshot *lb.Snapshot) error {
	for _, family := range families() {
		targets := targetsOf(snapshot, family)
		if len(targets) == 0 {
			continue
		}
		at := &chain{}
		for _, group := range byPrefix(targets) {
			if group[0].prefix.Bits() == 0 && len(p.config.Interfaces) == 0 {
				return fmt.Errorf("service %s wants packets to any address, so all that comes into this machine would wait in the queue; name the clients' interfaces with --interface", group[0].service.Name)
			}
			at.rules = append(at.rules, p.queueRules(group)...)
		}
		at.rules = slices.Compact(at.rules)
		if len(p.config.Interfaces) == 0 {
			at.jumps = append(at.jumps, p.queueJump("PREROUTING", ""))
		}
		for _, name := range p.config.Interfaces {
			at.jumps = append(at.jumps, p.queueJump("PREROUTING", name))
		}
		if p.config.Local {
			at.jumps = append(at.jumps, p.queueJump("OUTPUT", ""))
		}
		p.chains[familyTable{family, "mangle"}] = at
	}
	if len(p.chains) == 0 {
		return errors.New("no service of mode mark has an address")
	}
	return nil
}

// queueJump is the jump to the queue's chain.
func (p *Plan) queueJump(from, interfaceName string) string {
	rule := jump(from, interfaceName, p.config.Chain)
	if p.config.Unmarked {
		rule = strings.Replace(rule, comment(), "-m mark --mark 0x0 "+comment(), 1)
	}
	return rule
}

func jump(from, interfaceName, to string) string {
	in := ""
	if interfaceName != "" {
		in = " -i " + interfaceName
	}
	return fmt.Sprintf("-A %s%s %s -j %s", from, in, comment(), to)
}

// targetsOf lists what the services of mode mark want of a family.
func targetsOf(snapshot *lb.Snapshot, family Family) []target {
	any := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if family == IPv6 {
		any = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	var all []target
	for _, service := range snapshot.Services {
		if service.Mode != lb.Mark {
			continue
		}
		for _, vip := range service.VIPs {
			all = append(all, target{vip.Prefix, vip.Protocol, vip.First, vip.Last, service})
		}
		for _, rule := range service.Rules {
			prefixes := rule.Destinations
			if len(prefixes) == 0 {
				prefixes = []netip.Prefix{any}
			}
			for _, prefix := range prefixes {
				all = append(all, ruleTargets(rule, prefix)...)
			}
		}
	}
	return slices.DeleteFunc(all, func(t target) bool { return familyOf(t.prefix.Addr()) != family })
}

// ruleTargets are the targets of a flow rule at one prefix: one for each protocol and range of ports.
func ruleTargets(rule *lb.FlowRule, prefix netip.Prefix) []target {
	protocols := rule.Protocols
	if rule.UDPEncap != 0 {
		protocols = append(slices.Clone(protocols), lb.UDP) // the outer header
	}
	if len(protocols) == 0 {
		protocols = []uint8{0}
	}
	var all []target
	for _, protocol := range protocols {
		if len(rule.DestinationPorts) == 0 || protocol == 0 || rule.UDPEncap != 0 && protocol == lb.UDP {
			all = append(all, target{prefix, protocol, 0, 65535, rule.Service})
			continue
		}
		for _, ports := range rule.DestinationPorts {
			all = append(all, target{prefix, protocol, ports.First, ports.Last, rule.Service})
		}
	}
	return all
}

// byPrefix groups targets of one prefix, the most specific prefix first: iptables takes the first rule that matches.
func byPrefix(targets []target) [][]target {
	slices.SortStableFunc(targets, func(a, b target) int {
		return cmp.Or(cmp.Compare(b.prefix.Bits(), a.prefix.Bits()), a.prefix.Addr().Compare(b.prefix.Addr()),
			cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
	})
	var groups [][]target
	for start := 0; start < len(targets); {
		end := start + 1
		for end < len(targets) && targets[end].prefix == targets[start].prefix {
			end++
		}
		groups = append(groups, targets[start:end])
		start = end
	}
	return groups
}

// queueRules returns the rules of one prefix. If its services agree about failing open, one rule takes all its packets.
// Otherwise the services that fail open get rules with ports before that rule, and packets without ports fail closed.
func (p *Plan) queueRules(group []target) []string {
	prefix, open, closed := group[0].prefix, 0, 0
	for _, t := range group {
		if t.service.Bypass {
			open++
		} else {
			closed++
		}
	}
	names := func(t target) string { return t.service.Name }
	var all []string
	if p.config.Fragments { // before rules with ports, which only the first fragment of a datagram has
		all = append(all, p.fragmentRule(prefix, commonName(group, names), closed == 0))
	}
	if closed == 0 || open == 0 {
		return append(all, p.queueRule(prefix, "", commonName(group, names), closed == 0))
	}
	p.note("%s has services that fail open and others that do not: its fragments, pings and ICMP errors fail closed", prefix)
	for _, t := range group {
		if match := portMatch(t); t.service.Bypass && match != "" {
			all = append(all, p.queueRule(prefix, match, t.service.Name, true))
		}
	}
	return append(all, p.queueRule(prefix, "", commonName(group, names), false))
}

// commonName is the service of a group, or empty if there are several.
func commonName(group []target, name func(target) string) string {
	for _, t := range group[1:] {
		if name(t) != name(group[0]) {
			return ""
		}
	}
	return name(group[0])
}

// portMatch is the match of protocol and ports; empty for any protocol.
func portMatch(t target) string {
	name := ""
	switch t.protocol {
	case lb.TCP:
		name = "tcp"
	case lb.UDP:
		name = "udp"
	case lb.SCTP:
		name = "sctp"
	default:
		return ""
	}
	switch {
	case t.first == 0 && t.last == 65535:
		return "-p " + name
	case t.first == t.last:
		return fmt.Sprintf("-p %s -m %s --dport %d", name, name, t.first)
	}
	return fmt.Sprintf("-p %s -m %s --dport %d:%d", name, name, t.first, t.last)
}

// queueRule sends packets to the queues, except the queue of the fragments.
func (p *Plan) queueRule(prefix netip.Prefix, match, service string, bypass bool) string {
	count := p.config.Count
	if p.config.Fragments {
		count--
	}
	return p.ruleTo(p.config.First, count, prefix, match, service, bypass)
}

// fragmentRule sends first and later fragments to their queue.
func (p *Plan) fragmentRule(prefix netip.Prefix, service string, bypass bool) string {
	match := `-m u32 --u32 "0x4&0x3fff=0x1:0x3fff"` // more fragments, or an offset (RFC 791 section 3.1)
	if familyOf(prefix.Addr()) == IPv6 {
		match = "-m frag" // a fragment header (RFC 8200 section 4.5)
	}
	return p.ruleTo(p.config.First+uint16(p.config.Count-1), 1, prefix, match, service, bypass)
}

// ruleTo is one rule, word for word as iptables-save writes it.
func (p *Plan) ruleTo(queue uint16, count int, prefix netip.Prefix, match, service string, bypass bool) string {
	rule := "-A " + p.config.Chain
	if prefix.Bits() > 0 {
		rule += " -d " + prefix.String()
	}
	if match != "" {
		rule += " " + match
	}
	if service == "" {
		rule += " " + comment()
	} else {
		rule += " " + comment(service)
	}
	if count == 1 {
		rule += fmt.Sprintf(" -j NFQUEUE --queue-num %d", queue)
	} else {
		rule += fmt.Sprintf(" -j NFQUEUE --queue-balance %d:%d", queue, int(queue)+count-1)
	}
	if bypass {
		rule += " --queue-bypass"
	}
	return rule
}

// rejects plans the chain of the table filter: answers for packets that weir marked because no one takes them.
func (p *Plan) rejects(snapshot *lb.Snapshot) error {
	why := map[uint32]string{}
	for _, service := range snapshot.Services {
		if m := service.NoBackendMark; service.Mode == lb.Mark && m > 0 {
			why[uint32(m)] = "no_backend_mark"
		}
	}
	if m := snapshot.NoServiceMark; m > 0 {
		why[uint32(m)] = "no_service_mark"
	}
	marks := make([]uint32, 0, len(why))
	for m, key := range why {
		if name, taken := p.marks[m]; taken {
			return fmt.Errorf("%s %d is the mark of %s too; give it a mark of its own", key, m, name)
		}
		marks = append(marks, m)
	}
	slices.Sort(marks)
	p.rejected = why
	if len(marks) == 0 {
		return nil
	}
	for _, family := range p.Families() {
		at := &chain{}
		unreachable := "icmp-port-unreachable"
		if family == IPv6 {
			unreachable = "icmp6-port-unreachable"
		}
		for _, m := range marks {
			match := fmt.Sprintf("-m mark --mark 0x%x %s", m, comment(why[m]))
			at.rules = append(at.rules,
				fmt.Sprintf("-A %s -p tcp %s -j REJECT --reject-with tcp-reset", p.config.Chain, match),
				fmt.Sprintf("-A %s %s -j REJECT --reject-with %s", p.config.Chain, match, unreachable))
		}
		for _, from := range []string{"INPUT", "FORWARD"} {
			at.jumps = append(at.jumps, jump(from, "", p.config.Chain))
		}
		if p.config.Local {
			at.jumps = append(at.jumps, jump("OUTPUT", "", p.config.Chain))
		}
		p.chains[familyTable{family, "filter"}] = at
	}
	return nil
}
