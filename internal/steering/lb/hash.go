package lb

import (
	"cmp"
	"fmt"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/maglev"
)

// Hash is the method that assigns flows to slots of a Maglev table, and slots to backends.
type Hash uint8

const (
	SipHash Hash = iota // SipHash-2-4 under hash_key; rows of the table by name
	NFQLB               // as nfqlb: djb2; rows by slot number from the C library's rand()
)

// SCTPHash is the part of an SCTP packet that is hashed.
type SCTPHash uint8

const (
	sctpUnset SCTPHash = iota
	SCTPFlow           // addresses and ports, as for other protocols
	SCTPPorts          // the ports alone: an association keeps its backend over all its addresses (multihoming)
)

// DropMark instead of a reserved mark drops the packet. Mark 0 lets it pass unchanged.
const DropMark int64 = -1

// FlowHash returns the hash that picks the slot of a flow in the service's table.
func (s *Snapshot) FlowHash(service *Service, k flow.Key) uint64 {
	ports := k.Proto == SCTP && service.SCTPHash == SCTPPorts
	switch {
	case s.Hash == NFQLB && ports:
		return uint64(flow.NFQLBPorts(k))
	case s.Hash == NFQLB:
		return uint64(flow.NFQLBFlow(k))
	case service.Affinity == BySource:
		return s.HashKey.Source(k)
	case service.Affinity == NoSourcePort:
		k.SrcPort = 0
	case service.Affinity == DestinationPort:
		k.Src, k.SrcPort = [16]byte{}, 0
	case ports:
		return s.HashKey.Flow(flow.Key{SrcPort: k.SrcPort, DstPort: k.DstPort, Proto: k.Proto})
	}
	return s.HashKey.Flow(k)
}

// wholeFlow reports whether flows without a connection id go by the whole 5-tuple.
func (a Affinity) wholeFlow() bool { return a == ByFlow || a == ByCID }

// hash checks the keys of a service that control its hash.
func (c *compiler) hash(path string, spec *ServiceSpec, service *Service) error {
	service.SCTPHash, service.NoBackendMark = SCTPFlow, DropMark
	if c.fileHash == NFQLB {
		service.Stateless, service.SCTPHash = true, SCTPPorts
		switch {
		case service.Mode == NAT:
			return wrong(path+".mode", "write mode: mark, or another hash", "nfqlb's hash is for mode mark; nfqlb has no mode nat")
		case spec.Affinity != nil && !spec.Affinity.wholeFlow():
			return wrong(path+".affinity", "write affinity: flow, or another hash", "nfqlb hashes whole flows")
		}
	}
	if spec.SCTPHash != sctpUnset {
		service.SCTPHash = spec.SCTPHash
		switch {
		case spec.SCTPHash == SCTPPorts && service.Mode == NAT:
			return wrong(path+".sctp_hash", "remove it", "mode nat distinguishes associations by their addresses")
		case spec.SCTPHash == SCTPPorts && !c.caps.SCTPPorts:
			return c.refuse(path+".sctp_hash", "write flow", "cannot hash SCTP by ports alone")
		case spec.SCTPHash == SCTPPorts && spec.Affinity != nil && !spec.Affinity.wholeFlow():
			return wrong(path+".sctp_hash", "write one of them", "affinity %s and sctp_hash ports hash different fields", *spec.Affinity)
		}
	}
	if spec.Conntrack != nil {
		service.Stateless = !*spec.Conntrack
	}
	switch {
	case service.Stateless && service.Mode == NAT:
		return wrong(path+".conntrack", "remove it", "mode nat needs conntrack entries to translate replies")
	case service.Stateless && spec.NewFlowRate != 0:
		return wrong(path+".new_flow_rate", "remove it, or write conntrack: true", "without conntrack no packet is known to be of a new flow")
	case service.Stateless && !c.caps.Stateless:
		return c.refuse(path+".conntrack", "remove it", "remembers flows")
	}
	if m := spec.NoBackendMark; m != nil {
		if err := c.reservedMark(path+".no_backend_mark", *m); err != nil {
			return err
		}
		service.NoBackendMark = *m
	}
	var err error
	service.tableSize, err = c.tableSize(path+".maglev_size", cmp.Or(spec.MaglevSize, c.fileMaglev))
	return err
}

// reservedMark checks no_backend_mark and no_service_mark.
func (c *compiler) reservedMark(path string, mark int64) error {
	switch {
	case mark < DropMark || mark > 1<<32-1:
		return wrong(path, "write 0 to 4294967295, or -1 to drop", "%d is no mark", mark)
	case !c.caps.ReservedMarks:
		return c.refuse(path, "remove it", "sets no marks of its own")
	}
	return nil
}

// checkFileHash checks the hash settings of the file as a whole.
func (c *compiler) checkFileHash(spec *Spec) error {
	switch {
	case spec.Hash != NFQLB:
	case !c.caps.NFQLB:
		return c.refuse("hash", "write siphash", "cannot hash as nfqlb does")
	case spec.HashKey != nil:
		return wrong("hash_key", "remove it, or write hash: siphash", "nfqlb's hash has no key")
	}
	return nil
}

// tableSize checks a number of slots.
func (c *compiler) tableSize(path string, size int) (int, error) {
	if c.fileHash == NFQLB {
		if size < minNFQLBSize || size > maxNFQLBSize {
			return 0, wrong(path, fmt.Sprintf("write %d to %d, as for nfqlb's --M", minNFQLBSize, maxNFQLBSize), "%d is out of range", size)
		}
		size = maglev.PrimeBelow(size)
	}
	switch {
	case !maglev.IsPrime(size) || size > maglev.MaxSize:
		return 0, wrong(path, "write a prime from 251 to 16777213, such as 65537", "%d is no prime in range", size)
	case size < 251 && c.fileHash != NFQLB:
		return 0, wrong(path, "write a prime from 251, such as 65537", "%d is too small to spread evenly", size)
	case c.caps.MaxMaglev > 0 && size > c.caps.MaxMaglev:
		return 0, wrong(path, fmt.Sprintf("write a prime up to %d", c.caps.MaxMaglev), "%d is more than the data path %s can hold", size, c.caps.Name)
	}
	return size, nil
}

// nfqlb's bounds of --M.
const (
	minNFQLBSize = 3
	maxNFQLBSize = 994009
)

// share is one owner of a Maglev table.
type share struct {
	name   string
	weight int
	slot   int
}

// buildTable builds a table over the shares with weight, as indexes in shares; nil when there is none.
func buildTable(shares []share, hash Hash, size int) []int32 {
	var places []int32
	var entries []maglev.Entry
	var slots []int
	for i, s := range shares {
		if s.weight > 0 {
			places = append(places, int32(i))
			entries, slots = append(entries, maglev.Entry{Name: s.name, Weight: s.weight}), append(slots, s.slot)
		}
	}
	if len(places) == 0 {
		return nil
	}
	var table []int32
	if hash == NFQLB {
		table = maglev.BuildNFQLB(slots, size)
	} else {
		table = maglev.Build(entries, size)
	}
	for i, entry := range table {
		table[i] = places[entry]
	}
	return table
}

// checkWeight checks a weight; nfqlb has no weights other than zero and one value for all.
func checkWeight(path string, weight int, hash Hash) error {
	switch {
	case weight < 0 || weight > MaxWeight:
		return wrong(path+".weight", fmt.Sprintf("write 0 to %d", MaxWeight), "%d is out of range", weight)
	case hash == NFQLB && weight != 0 && weight != defaultWeight:
		return wrong(path+".weight", fmt.Sprintf("write %d, or 0 for none", defaultWeight), "nfqlb knows no weights")
	}
	return nil
}

// slotPicker assigns slots to the owners of one table: first the slots that the file sets, then those of the previous
// snapshot, then the first free ones in order.
type slotPicker struct {
	size  int
	taken map[int]int // slot → place in slots
	slots []int       // -1: none yet
	had   []int       // slots of the previous snapshot; -1: none
}

// add adds the next owner; had is its slot in the previous snapshot, or -1.
func (p *slotPicker) add(path string, hash Hash, index *int, had int) error {
	if p.taken == nil {
		p.taken = map[int]int{}
	}
	p.slots, p.had = append(p.slots, -1), append(p.had, had)
	if index == nil {
		return nil
	}
	path += ".index"
	switch other, taken := p.taken[*index]; {
	case hash != NFQLB:
		return wrong(path, "remove it, or write hash: nfqlb", "only nfqlb's tables go by index")
	case *index < 0 || *index >= p.size:
		return wrong(path, fmt.Sprintf("write 0 to %d", p.size-1), "%d is out of range", *index)
	case taken:
		return wrong(path, "give each its own index", "%d is the index of number %d of this list too", *index, other)
	}
	p.slots[len(p.slots)-1], p.taken[*index] = *index, len(p.slots)-1
	return nil
}

// fill gives each owner without an index its earlier slot if that is free, otherwise the first free one.
func (p *slotPicker) fill(path string) error {
	for i, had := range p.had {
		if _, taken := p.taken[had]; p.slots[i] < 0 && had >= 0 && had < p.size && !taken {
			p.slots[i], p.taken[had] = had, i
		}
	}
	next := 0
	for i, slot := range p.slots {
		if slot >= 0 {
			continue
		}
		for ; ; next++ {
			if _, taken := p.taken[next]; !taken {
				break
			}
		}
		if next >= p.size {
			return wrong(path, "write a greater maglev_size", "more entries than the table has slots")
		}
		p.slots[i], p.taken[next] = next, i
	}
	return nil
}
