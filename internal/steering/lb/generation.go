package lb

import (
	"slices"
	"strings"
	"time"
)

// Defaults and bounds of earlier Maglev tables.
const (
	defaultGenerations    = 0
	maxGenerations        = 4
	defaultGenerationTime = 5 * time.Minute
)

// Share is one owner of slots of an earlier Maglev table.
type Share struct {
	Name   string `json:"name"`
	Weight int    `json:"weight"` // 0: it took no new flows
}

// Generation is what an earlier Maglev table of a service was made of. The table is a function of it.
type Generation struct {
	// Since is when the table came into force, the times before included for which it was in force already; zero: not known.
	Since    time.Time `json:"since,omitzero"`
	Replaced time.Time `json:"replaced"` // when the next table came into force
	Backends []Share   `json:"backends"`

	table []int32 // indexes in Backends; nil: not built yet
}

// Earlier is what earlier tables say of packets without a conntrack entry. Both tables have the size of the service's
// Maglev table, and hold indexes in Service.Backends, or -1: no backend.
//
// A balancer that takes over the flows of another one has no entries for them. Those that began before the backends
// changed are on the backend that the earlier table named:
//
//	TCP    a packet that opens no connection goes by the newest earlier table that says otherwise than the present one and
//	       whose backend lives (up or draining); one that opens a connection goes by the present table.
//	Other  no packet says that it is the first of a flow. All packets in a slot whose owner before and owner now both take
//	       new flows, with the same weights in both tables, stay with the owner before; other slots change at once, so
//	       that a new backend gets flows, a draining one gets none, and a new weight counts.
type Earlier struct {
	TCP, Other []int32
}

// midstream returns the slots for packets of a protocol that do not open a flow.
func (e *Earlier) midstream(protocol uint8) []int32 {
	if protocol == TCP {
		return e.TCP
	}
	return e.Other
}

// SelectMidstream returns the backend of a packet that has no conntrack entry and does not open a connection. earlier says
// that an earlier Maglev table decided.
func (s *Service) SelectMidstream(hash uint64, protocol uint8) (b *Backend, earlier bool) {
	now := s.Select(hash)
	if s.Earlier == nil {
		return now, false
	}
	table := s.Earlier.midstream(protocol)
	i := table[hash%uint64(len(table))]
	if i < 0 {
		return nil, false
	}
	b = s.Backends[i]
	return b, b != now
}

// Moved returns the share of slots, 0 to 1, in which an earlier table sends packets in the middle of a TCP connection to another backend than the
// present table.
func (s *Service) Moved() float64 {
	if s.Earlier == nil {
		return 0
	}
	n := 0
	for slot, i := range s.Earlier.TCP {
		if len(s.Maglev) == 0 && i >= 0 || len(s.Maglev) > 0 && i != s.Maglev[slot] {
			n++
		}
	}
	return float64(n) / float64(len(s.Earlier.TCP))
}

// Expires returns when the first of the earlier tables is no longer used; zero: there is none.
func (s *Snapshot) Expires() (first time.Time) {
	for _, service := range s.Services {
		for i := range service.Generations {
			if at := service.Until(&service.Generations[i]); first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	return first
}

// Until returns when an earlier table is no longer used: after generation_time, or as long as it was in force, if that is less. After that more
// flows have begun under the tables that followed than under it, and to use it would lose more flows than it keeps.
func (s *Service) Until(g *Generation) time.Time {
	life := s.generationTime
	if !g.Since.IsZero() {
		life = max(0, min(life, g.Replaced.Sub(g.Since)))
	}
	return g.Replaced.Add(life)
}

// generations checks the keys about earlier tables.
func (c *compiler) generations(path string, spec *ServiceSpec, service *Service) error {
	service.KeepGenerations, service.generationTime = defaultGenerations, defaultGenerationTime
	if spec.GenerationTime != 0 {
		service.generationTime = spec.GenerationTime
	}
	if t := service.generationTime; t < time.Second || t > 24*time.Hour {
		return wrong(path+".generation_time", "write 1s to 24h, such as 5m", "%s is out of range", t)
	}
	without := ""
	switch {
	case service.Stateless:
		without = "without conntrack, an earlier table cannot be left behind"
	case c.fileHash == NFQLB:
		without = "the tables of hash nfqlb follow from indexes"
	case spec.SNAT != nil:
		without = "with snat, a flow of another balancer has a source port that this one does not know"
	}
	if without != "" {
		service.KeepGenerations = 0
	}
	if spec.Generations == nil {
		return nil
	}
	switch n := *spec.Generations; {
	case n < 0 || n > maxGenerations:
		return wrong(path+".generations", "write 0 to 4", "%d is out of range", n)
	case n > 0 && without != "":
		return wrong(path+".generations", "remove it", "%s", without)
	default:
		service.KeepGenerations = n
	}
	return nil
}

// remember keeps the tables that the service had before, and makes of them what steering reads.
func (c *compiler) remember(snapshot *Snapshot, service *Service) {
	if c.now.IsZero() || service.KeepGenerations == 0 {
		return
	}
	before, current := c.past(snapshot, service)
	var all []Generation
	if current != nil {
		all = append(all, *current)
	}
	all = append(all, before...)
	service.tableSince = service.since(all, current != nil, c.now)
	service.Generations = service.recent(all, c.now)
	if len(service.Generations) == 0 {
		return
	}
	if old := c.before[service.Name]; old != nil && old.sameEarlier(service) {
		service.Generations, service.Earlier = old.Generations, old.Earlier
		return
	}
	service.Earlier = service.earlier()
}

// since returns when the present table came into force: now, unless it is that of one of the tables before. Of these the first one was in force
// until now, if current. The zero time: it is not known.
func (s *Service) since(before []Generation, current bool, now time.Time) time.Time {
	list := owning(shareList(s))
	for i, g := range before {
		switch {
		case !slices.Equal(owning(g.Backends), list):
		case g.Since.IsZero() || i == 0 && current:
			return g.Since
		default:
			return now.Add(g.Since.Sub(g.Replaced))
		}
	}
	if !current { // other balancers may have had it
		return time.Time{}
	}
	return now
}

// past returns the earlier tables of the service, and the one in force until now, if it had the same hash.
func (c *compiler) past(snapshot *Snapshot, service *Service) (before []Generation, current *Generation) {
	if old := c.before[service.Name]; old != nil {
		if c.previous.HashKey != snapshot.HashKey || c.previous.Hash != snapshot.Hash || !service.hashesAs(old) {
			return nil, nil
		}
		if len(old.Maglev) > 0 {
			current = &Generation{Since: old.tableSince, Replaced: c.now, Backends: shareList(old), table: old.Maglev}
		}
		return old.Generations, current
	}
	past, ok := c.history.Services[service.Name]
	if !ok || past.Hashing != hashing(snapshot, service) {
		return nil, nil
	}
	if len(past.Backends) > 0 {
		current = &Generation{Since: past.Since, Replaced: c.now, Backends: past.Backends}
	}
	return past.Earlier, current
}

// hashesAs reports whether a flow has the same number of slot in the tables of both.
func (s *Service) hashesAs(old *Service) bool {
	return s.tableSize == old.tableSize && s.Affinity == old.Affinity && s.SCTPHash == old.SCTPHash
}

// shareList returns the backends of a service as what a table is made of, in the order of Backends.
func shareList(s *Service) []Share {
	list := make([]Share, len(s.Backends))
	for i, b := range s.Backends {
		list[i].Name = b.Name
		if b.TakesNew() {
			list[i].Weight = b.Weight
		}
	}
	return list
}

// recent returns those of the generations, newest first, that are still used: not too old, not too many, each different from
// the present table and from newer ones.
func (s *Service) recent(all []Generation, now time.Time) (kept []Generation) {
	seen := [][]Share{owning(shareList(s))}
	for _, g := range all {
		if len(kept) == s.KeepGenerations {
			break
		}
		list := owning(g.Backends)
		if !now.Before(s.Until(&g)) || len(list) == 0 || slices.ContainsFunc(seen, func(other []Share) bool { return slices.Equal(other, list) }) {
			continue
		}
		seen = append(seen, list)
		kept = append(kept, g)
	}
	return kept
}

// owning returns the shares that own slots, by name.
func owning(list []Share) []Share {
	own := slices.DeleteFunc(slices.Clone(list), func(s Share) bool { return s.Weight < 1 })
	slices.SortFunc(own, func(a, b Share) int { return strings.Compare(a.Name, b.Name) })
	return own
}

// sameEarlier reports whether the earlier tables of two snapshots of a service mean the same.
func (s *Service) sameEarlier(next *Service) bool {
	return s.Earlier != nil && s.KeepGenerations == next.KeepGenerations && s.generationTime == next.generationTime &&
		slices.EqualFunc(s.Generations, next.Generations, func(a, b Generation) bool {
			return a.Replaced.Equal(b.Replaced) && slices.Equal(a.Backends, b.Backends)
		}) && slices.EqualFunc(s.Backends, next.Backends, func(a, b *Backend) bool {
		return a.Name == b.Name && a.Weight == b.Weight && a.State == b.State && a.Action == b.Action
	})
}

// earlier merges the generations into the tables that steering reads; nil: they say what the present table says.
func (s *Service) earlier() *Earlier {
	e := &Earlier{TCP: make([]int32, s.tableSize), Other: make([]int32, s.tableSize)}
	for i := range e.TCP {
		e.TCP[i] = -1
	}
	copy(e.TCP, s.Maglev)
	copy(e.Other, e.TCP)
	present := slices.Clone(e.TCP)
	for _, g := range slices.Backward(s.Generations) { // the newest one last, so that it wins
		s.merge(e, present, &g)
	}
	if slices.Equal(e.TCP, present) {
		return nil // then Other is the same, too
	}
	return e
}

// merge writes into e where a generation has another living backend than the present table.
func (s *Service) merge(e *Earlier, present []int32, g *Generation) {
	owner := make([]int32, len(g.Backends)) // index in Backends of s, or -1 for one that is gone or down
	same := make([]bool, len(s.Backends))   // which of s took new flows in g with the weight that it has now
	for i, share := range g.Backends {
		owner[i] = -1
		if at := slices.IndexFunc(s.Backends, func(b *Backend) bool { return b.Name == share.Name }); at >= 0 {
			b := s.Backends[at]
			same[at] = b.TakesNew() && b.Weight == share.Weight
			if b.State != Down && !b.Refuses() {
				owner[i] = int32(at)
			}
		}
	}
	for slot, i := range g.slots(s.tableSize) {
		was, is := owner[i], present[slot]
		if was < 0 || was == is {
			continue
		}
		e.TCP[slot] = was
		if is >= 0 && same[is] && same[was] {
			e.Other[slot] = was
		}
	}
}

// slots returns the table of a generation, as indexes in its Backends.
func (g *Generation) slots(size int) []int32 {
	if len(g.table) == size {
		return g.table
	}
	list := make([]share, len(g.Backends))
	for i, b := range g.Backends {
		list[i] = share{name: b.Name, weight: b.Weight}
	}
	return buildTable(list, SipHash, size)
}
