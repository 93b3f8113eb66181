package rules

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/steering/lb"
)

// Defaults of Config.
const (
	DefaultChain    = "WEIR"
	DefaultPriority = 1000
	DefaultProtocol = 87
)

// Config describes the rules to make.
type Config struct {
	First uint16 // queues First to First+Count-1
	Count int    // 0: one queue
	// Interfaces are the ones on which clients' packets arrive. None: all.
	Interfaces []string
	// Local: clients on this machine are served too (OUTPUT).
	Local bool
	// Unmarked: packets that have a mark already skip the queue, such as those that a program before it has decided.
	Unmarked bool
	// Fragments: the last queue takes the fragments, and nothing else, so that a flood of them does not fill the others. There must
	// be two queues or more.
	Fragments bool
	// Chain is the name of our chain in the tables mangle and filter. Empty: DefaultChain.
	Chain string
	// Priority of our routing rules. 0: DefaultPriority.
	Priority int
	// TableBase is added to a mark to give its routing table.
	TableBase uint32
	// Protocol is the number that our routing rules and routes carry, so that we find them. 0: DefaultProtocol.
	Protocol int
}

// Family is an IP version.
type Family uint8

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String is IPv4 or IPv6.
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// program is the iptables of the family.
func (f Family) program() string {
	if f == IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// ip is the ip command of the family.
func (f Family) ip() string {
	if f == IPv6 {
		return "ip -6"
	}
	return "ip"
}

func families() []Family { return []Family{IPv4, IPv6} }

func familyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Route is the default route of a mark's table.
type Route struct {
	Family  Family
	Table   uint32
	Via     netip.Addr
	Backend string // service/backend or tier/member, for people
}

// Rule sends a mark to its table.
type Rule struct {
	Family Family
	Mark   uint32
	Table  uint32
}

// Plan is the target state of the machine. It is immutable.
type Plan struct {
	config Config
	chains map[familyTable]*chain
	routes []Route // ordered
	rules  []Rule  // ordered
	notes  []string

	marks, left, rejected map[uint32]string // by mark: routed, left to the operator, answered
}

// familyTable names a table of an address family.
type familyTable struct {
	family Family
	table  string // mangle or filter
}

// chain is our chain in one table: its rules, and the jumps to it, as iptables-save writes them.
type chain struct {
	rules, jumps []string
}

// Notes returns hints for the operator: what the plan leaves to them.
func (p *Plan) Notes() []string { return p.notes }

// Config is the configuration with its defaults filled in.
func (p *Plan) Config() Config { return p.config }

// Routes and Rules are those of the plan; not to be changed.
func (p *Plan) Routes() []Route { return p.routes }
func (p *Plan) Rules() []Rule   { return p.rules }

// Families are those that the plan has queue rules for.
func (p *Plan) Families() []Family {
	var all []Family
	for _, f := range families() {
		if p.chains[familyTable{f, "mangle"}] != nil {
			all = append(all, f)
		}
	}
	return all
}

var (
	chainName     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,27}$`)
	interfaceName = regexp.MustCompile(`^[A-Za-z0-9_.@-]{1,14}[A-Za-z0-9_.@+-]?$`)
)

func (c *Config) setDefaults() error {
	c.Count = cmp.Or(c.Count, 1)
	c.Chain = cmp.Or(c.Chain, DefaultChain)
	c.Priority = cmp.Or(c.Priority, DefaultPriority)
	c.Protocol = cmp.Or(c.Protocol, DefaultProtocol)
	switch {
	case c.Count < 1 || int(c.First)+c.Count-1 > 65535:
		return fmt.Errorf("queues %d to %d: write numbers from 0 to 65535, the first one first", c.First, int(c.First)+c.Count-1)
	case c.Fragments && c.Count < 2:
		return fmt.Errorf("queue %d alone cannot take both fragments and whole packets; give two or more queues, such as %d:%d", c.First, c.First, c.First+1)
	case !chainName.MatchString(c.Chain):
		return fmt.Errorf("chain %q: write a letter and up to 27 letters, digits, - or _", c.Chain)
	case slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING", "ACCEPT", "DROP", "RETURN", "QUEUE", "REJECT", "NFQUEUE"}, c.Chain):
		return fmt.Errorf("chain %q: iptables has its own; choose another name", c.Chain)
	case c.Priority < 1 || c.Priority > 32765:
		return fmt.Errorf("priority %d: write 1 to 32765, before the main table's rule", c.Priority)
	case c.Protocol < 5 || c.Protocol > 255:
		return fmt.Errorf("protocol %d: write 5 to 255, a number that nothing else on this machine uses for routes", c.Protocol)
	}
	c.Interfaces = slices.Clone(c.Interfaces)
	slices.Sort(c.Interfaces)
	c.Interfaces = slices.Compact(c.Interfaces)
	for _, name := range c.Interfaces {
		if !interfaceName.MatchString(name) {
			return fmt.Errorf("interface %q: write a name of up to 15 letters, digits and _ . @ -, with + at the end for all that begin so", name)
		}
	}
	return nil
}

// Make plans the rules of a configuration. It uses the services of mode mark. The error names what is not possible, and a
// remedy.
func Make(snapshot *lb.Snapshot, c Config) (*Plan, error) {
	if err := c.setDefaults(); err != nil {
		return nil, err
	}
	p := &Plan{config: c, chains: map[familyTable]*chain{}, marks: map[uint32]string{}, left: map[uint32]string{}}
	services := 0
	for _, service := range snapshot.Services {
		if service.Mode != lb.Mark {
			p.note("service %s has mode %s: it needs no rules, and gets none", service.Name, service.Mode)
			continue
		}
		services++
		for _, backend := range service.Backends {
			if backend.Refuses() {
				continue
			}
			there := destination{service.Name + "/" + backend.Name, backend.Mark, backend.Address4, backend.Address6}
			if err := p.lead(there, func(f Family) bool { return wants(service, f) }); err != nil {
				return nil, err
			}
		}
	}
	if services == 0 {
		return nil, errors.New("no service has mode mark; only those need rules")
	}
	if tier := snapshot.Tier; tier != nil {
		for _, member := range tier.Members {
			if member == tier.Self {
				continue // its mark is never set here
			}
			there := destination{"tier/" + member.Name, member.Mark, member.Address4, member.Address6}
			if err := p.lead(there, func(f Family) bool {
				return slices.ContainsFunc(snapshot.Services, func(s *lb.Service) bool { return wants(s, f) })
			}); err != nil {
				return nil, err
			}
		}
	}
	if err := p.queues(snapshot); err != nil {
		return nil, err
	}
	if err := p.rejects(snapshot); err != nil {
		return nil, err
	}
	slices.SortFunc(p.routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table))
	})
	slices.SortFunc(p.rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Mark, b.Mark))
	})
	return p, nil
}

func (p *Plan) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// destination is where a mark leads: a backend, or another balancer of the tier.
type destination struct {
	name               string
	mark               uint32
	address4, address6 netip.Addr
}

// lead plans the routing of one mark. wanted reports whether there are packets of a family.
func (p *Plan) lead(to destination, wanted func(Family) bool) error {
	table := to.mark + p.config.TableBase
	switch {
	case table < to.mark:
		return fmt.Errorf("%s: mark %d + table base %d is no table number; write a smaller table base", to.name, to.mark, p.config.TableBase)
	case table == 0 || table >= 253 && table <= 255:
		return fmt.Errorf("%s: table %d of mark %d is the system's own (default, main, local); write another mark, or a table base such as 1000", to.name, table, to.mark)
	}
	if !to.address4.IsValid() && !to.address6.IsValid() {
		p.left[to.mark] = to.name
		p.note("%s has no address: routing rule and route of mark %d are yours to make", to.name, to.mark)
		return nil
	}
	for _, family := range families() {
		address := to.address4
		if family == IPv6 {
			address = to.address6
		}
		if !address.IsValid() {
			if wanted(family) {
				p.note("%s has no %s address: %s packets with mark %d go by the ordinary routes", to.name, family, family, to.mark)
			}
			continue
		}
		known := false
		for _, other := range p.routes {
			if other.Family != family || other.Table != table {
				continue
			}
			if other.Via != address {
				return fmt.Errorf("%s and %s share mark %d and have the addresses %s and %s; give each its own mark", other.Backend, to.name, to.mark, other.Via, address)
			}
			known = true
		}
		if !known {
			p.routes = append(p.routes, Route{Family: family, Table: table, Via: address, Backend: to.name})
			p.rules = append(p.rules, Rule{Family: family, Mark: to.mark, Table: table})
		}
	}
	p.marks[to.mark] = to.name
	return nil
}

// wants reports whether the service has addresses of the family.
func wants(service *lb.Service, family Family) bool {
	for _, vip := range service.VIPs {
		if familyOf(vip.Prefix.Addr()) == family {
			return true
		}
	}
	for _, rule := range service.Rules {
		if len(rule.Destinations) == 0 {
			return true
		}
		for _, prefix := range rule.Destinations {
			if familyOf(prefix.Addr()) == family {
				return true
			}
		}
	}
	return false
}

// comment returns the comment that marks a rule as ours, in the form of iptables-save.
func comment(words ...string) string {
	text := strings.Join(append([]string{"weir"}, words...), ":")
	if len(words) > 0 {
		text = `"` + text + `"`
	}
	return "-m comment --comment " + text
}

// Marks returns the marks that the plan routes and those that it leaves to the operator, with the names of their backends.
func (p *Plan) Marks() (routed, left map[uint32]string) { return p.marks, p.left }

// Rejected returns the marks that the plan answers with a rejection, with the configuration key of each.
func (p *Plan) Rejected() map[uint32]string { return p.rejected }
