package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// Tier is the set of balancers that share the work on fragments.
type Tier struct {
	Self    *Member
	Members []*Member // ordered by name
	Maglev  []int32   // hash % len → index in Members; empty when no member has weight
}

// Member is one balancer of a tier.
type Member struct {
	Index  int // in Tier.Members
	Name   string
	Mark   uint32
	Weight int
	// Address4 and Address6 are the next hops to it, invalid where the spec has none.
	Address4, Address6 netip.Addr
	Slot               int // hash nfqlb: the row of its permutation; else -1
}

// Member returns the balancer that gets the fragments between two addresses; nil: this one.
func (s *Snapshot) Member(src, dst [16]byte) *Member {
	if s.Tier == nil || len(s.Tier.Maglev) == 0 {
		return nil
	}
	var h uint64
	if s.Hash == NFQLB {
		h = uint64(flow.NFQLBAddresses(src, dst))
	} else {
		h = s.HashKey.Flow(flow.Key{Src: src, Dst: dst})
	}
	m := s.Tier.Members[s.Tier.Maglev[h%uint64(len(s.Tier.Maglev))]]
	if m == s.Tier.Self {
		return nil
	}
	return m
}

// tier compiles the tier section.
func (c *compiler) tier(spec *Spec, snapshot *Snapshot) error {
	if spec.Tier == nil {
		return nil
	}
	switch {
	case !c.caps.Tier:
		return c.refuse("tier", "remove it", "hands no fragments to other balancers")
	case len(spec.Tier.Members) == 0:
		return wrong("tier.members", "add the balancers of the tier, this one too, each with name and mark", "the tier has no member")
	case len(spec.Tier.Members) > MaxMembers:
		return wrong("tier.members", "make several tiers", "%d members, at most %d", len(spec.Tier.Members), MaxMembers)
	}
	size, err := c.tableSize("tier.maglev_size", cmp.Or(spec.Tier.MaglevSize, c.fileMaglev))
	if err != nil {
		return err
	}
	for _, service := range snapshot.Services {
		if service.Mode != Mark {
			return wrong("tier", "write mode: mark in each service", "service %q has mode %s, whose fragments cannot be routed to another balancer by mark", service.Name, service.Mode)
		}
	}
	tier := &Tier{}
	slots := slotPicker{size: size}
	for i := range spec.Tier.Members {
		m, err := c.member(fmt.Sprintf("tier.members[%d]", i), &spec.Tier.Members[i], tier, snapshot)
		if err != nil {
			return err
		}
		tier.Members = append(tier.Members, m)
		if err := slots.add(fmt.Sprintf("tier.members[%d]", i), spec.Hash, spec.Tier.Members[i].Index, c.memberHad(m.Name)); err != nil {
			return err
		}
	}
	if spec.Hash == NFQLB {
		if err := slots.fill("tier.members"); err != nil {
			return err
		}
	}
	for i, m := range tier.Members {
		m.Slot = slots.slots[i]
		if m.Name == spec.Tier.Self {
			tier.Self = m
		}
	}
	if tier.Self == nil {
		return wrong("tier.self", "write the name of the member that this balancer is", "no member is named %q", spec.Tier.Self)
	}
	slices.SortFunc(tier.Members, func(a, b *Member) int { return cmp.Compare(a.Name, b.Name) })
	shares := make([]share, 0, len(tier.Members))
	for i, m := range tier.Members {
		m.Index = i
		shares = append(shares, share{m.Name, m.Weight, m.Slot})
	}
	tier.Maglev = buildTable(shares, spec.Hash, size)
	snapshot.Tier = tier
	return nil
}

// memberHad is the slot of a member in the previous snapshot; -1: none.
func (c *compiler) memberHad(name string) int {
	if c.previous == nil || c.previous.Tier == nil {
		return -1
	}
	for _, m := range c.previous.Tier.Members {
		if m.Name == name {
			return m.Slot
		}
	}
	return -1
}

func (c *compiler) member(path string, spec *MemberSpec, tier *Tier, snapshot *Snapshot) (*Member, error) {
	if err := checkName(path, "member", spec.Name); err != nil {
		return nil, err
	}
	m := &Member{Name: spec.Name, Mark: spec.Mark, Weight: defaultWeight}
	if spec.Weight != nil {
		m.Weight = *spec.Weight
	}
	if err := checkWeight(path, m.Weight, snapshot.Hash); err != nil {
		return nil, err
	}
	if m.Mark == 0 {
		return nil, wrong(path+".mark", "add the fwmark whose route leads to it, also for this balancer itself", "the member has no mark")
	}
	if err := memberAddresses(path, spec, m); err != nil {
		return nil, err
	}
	for i, other := range tier.Members {
		switch {
		case other.Name == m.Name:
			return nil, wrong(path+".name", "give each member its own name", "%q is the name of members[%d] too", m.Name, i)
		case other.Mark == m.Mark:
			return nil, wrong(path+".mark", "give each member its own mark", "%d is the mark of members[%d] too", m.Mark, i)
		}
	}
	for _, service := range snapshot.Services {
		for _, b := range service.Backends {
			if b.Mark == m.Mark {
				return nil, wrong(path+".mark", "give it another mark, such as 201", "%d is the mark of backend %s/%s too", m.Mark, service.Name, b.Name)
			}
		}
	}
	return m, nil
}

func memberAddresses(path string, spec *MemberSpec, m *Member) error {
	keys := []string{".address", ".address2"}
	for i, address := range []netip.Addr{spec.Address, spec.Address2} {
		if !address.IsValid() {
			continue
		}
		if err := checkUnicast(path+keys[i], address); err != nil {
			return err
		}
	}
	switch first, second := spec.Address.Unmap(), spec.Address2.Unmap(); {
	case !first.IsValid() && second.IsValid():
		return wrong(path+".address", "write the one address as address", "there is an address2, and no address")
	case second.IsValid() && first.Is4() == second.Is4():
		return wrong(path+".address2", "write one IPv4 and one IPv6 address", "%s is of the same family as %s", second, first)
	case first.Is4():
		m.Address4, m.Address6 = first, second
	default:
		m.Address4, m.Address6 = second, first
	}
	return nil
}
