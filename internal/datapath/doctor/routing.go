package doctor

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/weir-lb/weir/internal/datapath/nfqueue/rules"
	"github.com/weir-lb/weir/internal/finding"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// rules compares the rules of the plan with those of the machine.
func (e *examiner) rules() error {
	if e.Plan == nil {
		return nil
	}
	missing, err := rules.Inspect(e.ctx, e.Plan)
	if collision := (*rules.CollisionError)(nil); errors.As(err, &collision) {
		for _, text := range collision.Collisions {
			what, remedy, _ := strings.Cut(text, "remove it: ")
			e.Bad(finding.Fail, remedy, "%s", strings.TrimSuffix(strings.TrimSuffix(what, ", or "), "; "))
		}
		return nil
	}
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		e.OK("%d routes, %d routing rules and the chains %s are as the file wants them", len(e.Plan.Routes()), len(e.Plan.Rules()), e.Plan.Config().Chain)
		return nil
	}
	some := strings.Join(missing[:min(len(missing), 3)], "; ")
	if len(missing) > 3 {
		some += fmt.Sprintf("; and %d more", len(missing)-3)
	}
	e.Bad(finding.Fail, e.applyCommand(), "rules or routes are missing or outdated: %s", some)
	return nil
}

// markRoutes checks the routing of marks that the plan leaves to the operator.
func (e *examiner) markRoutes() error {
	if e.Plan == nil {
		return nil
	}
	_, left := e.Plan.Marks()
	if len(left) == 0 {
		return nil
	}
	before := len(e.Findings)
	var all []netlink.Rule
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		found, err := netlink.RuleList(family)
		if err != nil {
			return fmt.Errorf("read routing rules: %w", err)
		}
		for i := range found {
			found[i].Family = family
		}
		all = append(all, found...)
	}
	for _, mark := range slices.Sorted(maps.Keys(left)) {
		i := slices.IndexFunc(all, func(r netlink.Rule) bool {
			return r.Mark != 0 && (r.Mask == nil && r.Mark == mark || r.Mask != nil && mark&*r.Mask == r.Mark&*r.Mask)
		})
		if i < 0 {
			e.Bad(finding.Fail, fmt.Sprintf("ip rule add fwmark %d lookup %d && ip route add default via ADDRESS table %d", mark, mark, mark),
				"no routing rule takes mark %d of %s, which has no address in the file", mark, left[mark])
			continue
		}
		routes, err := netlink.RouteListFiltered(all[i].Family, &netlink.Route{Table: all[i].Table}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("read table %d: %w", all[i].Table, err)
		}
		if len(routes) == 0 {
			e.Bad(finding.Fail, fmt.Sprintf("ip route add default via ADDRESS table %d", all[i].Table), "table %d, where mark %d of %s leads, is empty", all[i].Table, mark, left[mark])
		}
	}
	if e.Silent(before) {
		e.OK("the marks of backends without an address have routing rules")
	}
	return nil
}

// marks looks for rules of others that set our marks.
func (e *examiner) marks() error {
	if e.Plan == nil {
		return nil
	}
	before := len(e.Findings)
	routed, left := e.Plan.Marks()
	for _, rule := range e.listed {
		value, ok := setsMark(rule.Words())
		if !ok || rule.Ours() {
			continue
		}
		for _, names := range []map[uint32]string{routed, left, e.Plan.Rejected()} {
			if name, taken := names[value]; taken {
				e.Bad(finding.Warn, rule.Delete(), "a rule of table %s gives mark %d, which is that of %s, to other packets: %s", rule.Table, value, name, rule.Rule)
			}
		}
	}
	if e.Silent(before) {
		e.OK("no other iptables rule sets one of our %d marks", len(routed)+len(left)+len(e.Plan.Rejected()))
	}
	return nil
}

// setsMark returns the mark that a rule sets as a whole.
func setsMark(words []string) (uint32, bool) {
	target, text := "", ""
	for i, word := range words[:max(len(words)-1, 0)] {
		switch word {
		case "-j":
			target = words[i+1]
		case "--set-xmark", "--set-mark":
			text = words[i+1]
		}
	}
	if target != "MARK" || text == "" {
		return 0, false
	}
	number, mask, masked := strings.Cut(text, "/")
	value, err := strconv.ParseUint(number, 0, 32)
	if err != nil {
		return 0, false
	}
	if masked {
		if m, err := strconv.ParseUint(mask, 0, 32); err != nil || m != 0xffffffff {
			return 0, false // changes some bits of a mark that is there
		}
	}
	return uint32(value), true
}

// localVIP looks for VIPs that are addresses of this machine: routing delivers their packets locally, whatever their mark.
func (e *examiner) localVIP() error {
	if e.Snapshot == nil {
		return nil
	}
	before := len(e.Findings)
	for _, link := range e.links {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
		}
		for _, a := range addresses {
			address, ok := netip.AddrFromSlice(a.IP)
			if !ok {
				continue
			}
			address = address.Unmap()
			for _, service := range e.Snapshot.Services {
				if service.Mode != lb.Mark || !slices.ContainsFunc(service.VIPs, func(v lb.VIP) bool { return v.Prefix.Contains(address) }) {
					continue
				}
				e.Bad(finding.Fail, fmt.Sprintf("ip address del %s dev %s", a.IPNet, link.Attrs().Name),
					"%s of service %s is an address of %s: its packets are delivered here, whatever their mark", address, service.Name, link.Attrs().Name)
				break
			}
		}
	}
	if e.Silent(before) {
		e.OK("no VIP is an address of this machine")
	}
	return nil
}

// forwarding checks whether packets that arrive on our interfaces may be forwarded.
func (e *examiner) forwarding() error {
	before := len(e.Findings)
	for _, family := range e.families() {
		all, dir := "ipv4/ip_forward", "ipv4"
		if family == rules.IPv6 {
			all, dir = "ipv6/conf/all/forwarding", "ipv6"
		}
		value, ok, err := e.sysctl(all)
		if err != nil {
			return err
		}
		if ok && value == 0 {
			e.Bad(finding.Fail, set(all, 1), "%s packets are not forwarded by this machine", family)
			continue
		}
		for _, name := range e.names {
			path := dir + "/conf/" + name + "/forwarding"
			if value, ok, err := e.sysctl(path); err != nil {
				return err
			} else if ok && value == 0 {
				e.Bad(finding.Fail, set(path, 1), "%s packets that come in on %s are not forwarded", family, name)
			}
		}
	}
	if e.Silent(before) {
		e.OK("packets are forwarded")
	}
	return nil
}

// reversePath looks for strict reverse path filters on the interfaces where clients' packets arrive.
func (e *examiner) reversePath() error {
	before := len(e.Findings)
	all, _, err := e.sysctl("ipv4/conf/all/rp_filter")
	if err != nil {
		return err
	}
	marksAll, _, err := e.sysctl("ipv4/conf/all/src_valid_mark")
	if err != nil {
		return err
	}
	for _, name := range e.names {
		path := "ipv4/conf/" + name + "/rp_filter"
		own, _, err := e.sysctl(path)
		if err != nil {
			return err
		}
		if max(all, own) != 1 {
			continue
		}
		byMark, _, err := e.sysctl("ipv4/conf/" + name + "/src_valid_mark")
		if err != nil {
			return err
		}
		if max(marksAll, byMark) == 1 {
			e.Bad(finding.Fail, set(path, 2), "the strict reverse path filter of %s looks up the way back by mark (src_valid_mark), which leads to a backend: it drops every marked packet", name)
		} else {
			e.Bad(finding.Warn, set(path, 2), "the strict reverse path filter of %s drops clients' packets whose way back is another interface", name)
		}
	}
	if e.Silent(before) {
		e.OK("no strict reverse path filter")
	}
	return nil
}

// reflect checks whether ICMP errors of this machine carry the mark of the packet that caused them. In that case the routing
// rule of the mark sends them to the backend, and no client learns of a smaller MTU.
func (e *examiner) reflect() error {
	before := len(e.Findings)
	for _, family := range e.families() {
		path := strings.ToLower(family.String()) + "/fwmark_reflect"
		value, ok, err := e.sysctl(path)
		if err != nil {
			return err
		}
		if ok && value != 0 {
			e.Bad(finding.Fail, set(path, 0), "%s errors of this machine, such as those about the MTU, take the mark of the packet and go to its backend instead of the client", family)
		}
	}
	if e.Silent(before) {
		e.OK("errors of this machine go to the client (fwmark_reflect is off)")
	}
	return nil
}
