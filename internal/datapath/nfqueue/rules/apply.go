package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// step is one change that can be undone.
type step struct {
	commands []string // the same in shell
	do, undo func(context.Context) error
}

// Apply changes the state of the calling thread's network namespace to that of the plan. It returns the changes as shell
// commands, none if the state was right already. After an error nothing has changed, or the error lists what has.
func Apply(ctx context.Context, p *Plan) (changes []string, err error) {
	steps, err := p.steps(ctx)
	if err != nil {
		return nil, err
	}
	return run(ctx, steps)
}

// Inspect returns what Apply would do; nothing if the state is that of the plan. The error names conflicting rules and
// routes of others.
func Inspect(ctx context.Context, p *Plan) (changes []string, err error) {
	steps, err := p.steps(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		changes = append(changes, s.commands...)
	}
	return changes, nil
}

// Remove removes everything that c.Chain and c.Protocol mark as ours, also if only a part of it exists. It returns the
// changes it made.
func Remove(ctx context.Context, c Config) (changes []string, err error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	p := &Plan{config: c}
	steps, err := p.steps(ctx)
	if err != nil {
		return nil, err
	}
	return run(ctx, steps)
}

// Commands returns the plan as shell commands for a machine without any of it.
func (p *Plan) Commands() []string {
	var all []string
	for _, r := range p.routes {
		all = append(all, p.routeCommand("add", r))
	}
	for _, r := range p.rules {
		all = append(all, p.ruleCommand("add", r))
	}
	for _, at := range familyTables() {
		if c := p.chains[at]; c != nil {
			all = append(all, chainCommands(at, p.config.Chain, chainState{}, chainState{true, c.rules, c.jumps})...)
		}
	}
	return all
}

// familyTables lists the tables of our chains in the order in which they are made: the queue comes last, when everything
// else is ready.
func familyTables() []familyTable {
	var all []familyTable
	for _, table := range []string{"filter", "mangle"} {
		for _, family := range families() {
			all = append(all, familyTable{family, table})
		}
	}
	return all
}

func (p *Plan) routeCommand(verb string, r Route) string {
	return fmt.Sprintf("%s route %s default via %s table %d proto %d", r.Family.ip(), verb, r.Via, r.Table, p.config.Protocol)
}

func (p *Plan) ruleCommand(verb string, r Rule) string {
	return fmt.Sprintf("%s rule %s fwmark %d lookup %d priority %d protocol %d", r.Family.ip(), verb, r.Mark, r.Table, p.config.Priority, p.config.Protocol)
}

func chainCommands(at familyTable, name string, from, to chainState) []string {
	var all []string
	for _, line := range transaction(name, from, to) {
		if strings.HasPrefix(line, ":") {
			line = "-N " + name
			if from.exists {
				line = "-F " + name
			}
		}
		all = append(all, fmt.Sprintf("%s -w -t %s %s", at.family.program(), at.table, line))
	}
	return all
}

// run executes the steps in order. After an error it undoes the executed steps, the last one first.
func run(ctx context.Context, steps []step) (changes []string, err error) {
	for i, s := range steps {
		if err = ctx.Err(); err == nil {
			err = s.do(ctx)
		}
		if err == nil {
			changes = append(changes, s.commands...)
			continue
		}
		back := context.WithoutCancel(ctx)
		for _, done := range slices.Backward(steps[:i]) {
			if undone := done.undo(back); undone != nil {
				err = errors.Join(err, fmt.Errorf("not taken back: %s: %w", strings.Join(done.commands, "; "), undone))
			}
		}
		return nil, err
	}
	return changes, nil
}

// steps compares the plan with the machine.
func (p *Plan) steps(ctx context.Context) ([]step, error) {
	now, err := readRouting(p)
	if err != nil {
		return nil, err
	}
	chains, collisions, err := p.chainSteps(ctx)
	if err != nil {
		return nil, err
	}
	collisions = append(collisions, p.routingCollisions(now)...)
	if len(collisions) > 0 {
		return nil, &CollisionError{collisions}
	}
	steps := append(p.additions(now), chains...)
	return append(steps, p.deletions(now)...), nil
}

// CollisionError names the rules and routes of others that conflict with the plan.
type CollisionError struct{ Collisions []string }

func (e *CollisionError) Error() string {
	return "in the way:\n  " + strings.Join(e.Collisions, "\n  ")
}

// additions are the routes and routing rules that are missing.
func (p *Plan) additions(now *routing) []step {
	var steps []step
	for _, r := range p.routes {
		same := func(other Route) bool {
			return other.Family == r.Family && other.Table == r.Table && other.Via == r.Via
		}
		if slices.ContainsFunc(now.routes, same) {
			continue
		}
		before := slices.IndexFunc(now.routes, func(o Route) bool { return o.Family == r.Family && o.Table == r.Table })
		s := step{
			commands: []string{p.routeCommand("replace", r)},
			do:       func(context.Context) error { return p.putRoute(r) },
			undo:     func(context.Context) error { return netlink.RouteDel(p.kernelRoute(r)) },
		}
		if before >= 0 {
			old := now.routes[before]
			s.undo = func(context.Context) error { return p.putRoute(old) }
		}
		steps = append(steps, s)
	}
	for _, r := range p.rules {
		if !slices.Contains(now.rules, r) {
			steps = append(steps, p.ruleStep(r, true))
		}
	}
	return steps
}

func (p *Plan) ruleStep(r Rule, add bool) step {
	put := func(context.Context) error {
		if err := netlink.RuleAdd(p.kernelRule(r)); err != nil {
			return fmt.Errorf("%s: %w", p.ruleCommand("add", r), err)
		}
		return nil
	}
	take := func(context.Context) error {
		if err := netlink.RuleDel(p.kernelRule(r)); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", p.ruleCommand("del", r), err)
		}
		return nil
	}
	if add {
		return step{[]string{p.ruleCommand("add", r)}, put, take}
	}
	return step{[]string{p.ruleCommand("del", r)}, take, put}
}

// deletions are our rules and routes that the plan no longer has.
func (p *Plan) deletions(now *routing) []step {
	var steps []step
	for i, r := range now.rules {
		if !slices.Contains(p.rules, r) || slices.Contains(now.rules[:i], r) {
			steps = append(steps, p.ruleStep(r, false))
		}
	}
	for _, rule := range now.outdated {
		steps = append(steps, step{
			commands: []string{fmt.Sprintf("ip rule del priority %d # %s", rule.Priority, rule)},
			do:       func(context.Context) error { return netlink.RuleDel(&rule) },
			undo:     func(context.Context) error { return netlink.RuleAdd(&rule) },
		})
	}
	replaced := func(r Route) bool { // by an addition, in place
		return slices.ContainsFunc(p.routes, func(o Route) bool { return o.Family == r.Family && o.Table == r.Table })
	}
	for i, r := range now.routes {
		first := slices.IndexFunc(now.routes, func(o Route) bool { return o.Family == r.Family && o.Table == r.Table }) == i
		wanted := slices.ContainsFunc(p.routes, func(o Route) bool { return o.Family == r.Family && o.Table == r.Table && o.Via == r.Via })
		if wanted || first && replaced(r) {
			continue
		}
		steps = append(steps, step{
			commands: []string{p.routeCommand("del", r)},
			do:       func(context.Context) error { return gone(netlink.RouteDel(p.kernelRoute(r))) },
			undo:     func(context.Context) error { return p.putRoute(r) },
		})
	}
	for _, route := range now.strange {
		steps = append(steps, step{
			commands: []string{fmt.Sprintf("ip route del table %d proto %d # %s", route.Table, p.config.Protocol, route)},
			do:       func(context.Context) error { return gone(netlink.RouteDel(&route)) },
			undo:     func(context.Context) error { return netlink.RouteAdd(&route) },
		})
	}
	return steps
}

// gone treats the absence of a rule or route that should be deleted as success: an interface that went down also removes its
// routes.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// chainSteps compares our chains of both tables and families.
func (p *Plan) chainSteps(ctx context.Context) (steps []step, collisions []string, err error) {
	rules := map[Family]*saved{}
	here := p.here()
	for _, at := range familyTables() {
		want, name := p.chains[at], p.config.Chain
		if !slices.Contains(here, at.family) {
			continue
		}
		if rules[at.family] == nil {
			if rules[at.family], err = save(ctx, at.family); err != nil {
				return nil, nil, err
			}
			if p.chains[familyTable{at.family, "mangle"}] != nil {
				collisions = append(collisions, p.queueCollisions(at.family, rules[at.family])...)
			}
		}
		has := rules[at.family].table(at.table)
		from := stateOf(has, name)
		strange := slices.ContainsFunc(from.rules, func(rule string) bool { return !isOurs(rule) })
		if len(from.rules) > 0 && strange {
			collisions = append(collisions, fmt.Sprintf("the chain %s of table %s (%s) holds rules of others; choose another --chain, or remove it: %s -w -t %s -F %s", name, at.table, at.family, at.family.program(), at.table, name))
			continue
		}
		for _, rule := range from.jumps {
			if !isOurs(rule) {
				collisions = append(collisions, fmt.Sprintf("a rule of table %s (%s) that is not ours leads to our chain: %s; remove it: %s -w -t %s -D %s", at.table, at.family, rule, at.family.program(), at.table, strings.TrimPrefix(rule, "-A ")))
			}
		}
		to := chainState{}
		if want != nil {
			to = chainState{true, want.rules, p.jumpsOf(want, from, rules[at.family].tables[at.table] == nil)}
		}
		if from.exists == to.exists && sameRules(from.rules, to.rules) && slices.EqualFunc(from.jumps, to.jumps, sameRule) {
			continue
		}
		steps = append(steps, chainStep(at, name, from, to))
	}
	return steps, collisions, nil
}

// jumpsOf returns the jumps of the plan. They are marked if we made, or had made, the table.
func (p *Plan) jumpsOf(want *chain, from chainState, made bool) []string {
	for _, rule := range from.jumps {
		made = made || tableIsOurs(rule)
	}
	if !made {
		return want.jumps
	}
	marked := make([]string, len(want.jumps))
	for i, rule := range want.jumps {
		marked[i] = strings.Replace(rule, comment(), comment(madeTable), 1)
	}
	return marked
}

func tableIsOurs(jump string) bool {
	text, _ := option(split(jump), "--comment")
	return text == "weir:"+madeTable
}

func chainStep(at familyTable, name string, from, to chainState) step {
	there, back := transaction(name, from, to), transaction(name, to, from)
	empty := !to.exists && slices.ContainsFunc(from.jumps, tableIsOurs)
	s := step{
		commands: chainCommands(at, name, from, to),
		do: func(ctx context.Context) error {
			if err := restore(ctx, at, there); err != nil || !empty {
				return err
			}
			return dropTable(ctx, at)
		},
		undo: func(ctx context.Context) error {
			if err := restore(ctx, at, back); err != nil || from.exists || !slices.ContainsFunc(to.jumps, tableIsOurs) {
				return err
			}
			return dropTable(ctx, at)
		},
	}
	return s
}

// queueCollisions returns rules of others that send packets to our queues.
func (p *Plan) queueCollisions(family Family, rules *saved) []string {
	var all []string
	for table, t := range rules.tables {
		for _, rule := range t.rules {
			first, last, ok := queuesOf(rule)
			ours := table == "mangle" && strings.HasPrefix(rule, "-A "+p.config.Chain+" ") && isOurs(rule)
			if !ok || ours || last < int(p.config.First) || first >= int(p.config.First)+p.config.Count {
				continue
			}
			all = append(all, fmt.Sprintf("queue %d is fed by another rule of table %s (%s): %s; choose other queues with --queue, or remove it: %s -w -t %s -D %s",
				max(first, int(p.config.First)), table, family, rule, family.program(), table, strings.TrimPrefix(rule, "-A ")))
		}
	}
	slices.Sort(all)
	return all
}

// routingCollisions returns routing rules of others that match our marks before ours do, and routes of others in our tables.
func (p *Plan) routingCollisions(now *routing) []string {
	var all []string
	for _, rule := range now.foreign {
		family := IPv4
		if rule.Family == netlink.FAMILY_V6 {
			family = IPv6
		}
		mask := uint32(0xffffffff)
		if rule.Mask != nil {
			mask = *rule.Mask
		}
		if rule.Mark == 0 || rule.Priority > p.config.Priority {
			continue
		}
		for _, ours := range p.rules {
			if ours.Family == family && rule.Mark&mask == ours.Mark&mask && uint32(rule.Table) != ours.Table {
				all = append(all, fmt.Sprintf("the %s routing rule %d of others takes mark %d of %s to table %d first; choose a smaller --priority, or remove it: %s rule del priority %d fwmark 0x%x/0x%x",
					family, rule.Priority, ours.Mark, p.marks[ours.Mark], rule.Table, family.ip(), rule.Priority, rule.Mark, mask))
				break
			}
		}
	}
	for _, route := range now.others {
		family := IPv4
		if route.Family == netlink.FAMILY_V6 {
			family = IPv6
		}
		to := "default"
		if !isDefault(&route) {
			to = route.Dst.String()
		}
		if family == IPv6 && route.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		all = append(all, fmt.Sprintf("table %d holds a route that is not ours: %s via %s; choose another --table-base, or remove it: %s route del %s table %d",
			route.Table, to, route.Gw, family.ip(), to, route.Table))
	}
	return all
}
