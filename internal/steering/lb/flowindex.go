package lb

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// ruleIndex finds the winning flow rule of a packet. Each field (addresses, ports, compared bytes) cuts its values into
// intervals over which the set of matching rules does not change, and keeps that set as bits, rule i at bit i. A look-up
// is a binary search per field and the intersection of what they give, so it costs nearly the same for one rule and
// for thousands.
type ruleIndex struct {
	words                         int // of a set; 0: no rules
	classes                       [classes][]uint64
	destinations, sources         field
	destinationPorts, sourcePorts field
	encap                         field // by UDP port: rules whose SCTP comes there; empty: none has such
	places                        [classes][]placeIndex
}

// placeIndex is the field of the rules that compare bytes at one position of a header.
type placeIndex struct {
	place ByteMatch
	field field
	other []uint64 // rules that compare nothing there
}

// point is a value of a field: an address, a port, bytes of a header.
type point struct{ hi, lo uint64 }

func (p point) less(q point) bool { return p.hi < q.hi || p.hi == q.hi && p.lo < q.lo }

// next returns the point after p; last reports that there is none.
func (p point) next() (q point, last bool) {
	q = point{p.hi, p.lo + 1}
	if q.lo == 0 {
		q.hi++
	}
	return q, q == point{}
}

func addressPoint(a [16]byte) point {
	return point{binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])}
}

// field maps each value to the set of rules that match it.
type field struct {
	starts []point // of the intervals, ascending, the first is zero
	sets   [][]uint64
}

func (f *field) find(p point) []uint64 {
	low, high := 0, len(f.starts)
	for high-low > 1 {
		middle := int(uint(low+high) >> 1)
		if p.less(f.starts[middle]) {
			high = middle
		} else {
			low = middle
		}
	}
	return f.sets[low]
}

// Match returns the flow rule that decides about a packet, or nil if none matches. header is the packet's transport header
// as far as it is known: a rule that compares bytes beyond its end does not match.
func (s *Snapshot) Match(k flow.Key, class Class, header []byte) *FlowRule {
	x := &s.rules
	if x.words == 0 {
		return nil
	}
	var room [MaxFlowRules / 64]uint64
	left := room[:x.words]
	copy(left, x.classes[class])
	keep(left, x.destinations.find(addressPoint(k.Dst)))
	keep(left, x.sources.find(addressPoint(k.Src)))
	if class == ClassTCP || class == ClassUDP || class == ClassSCTP {
		keep(left, x.destinationPorts.find(point{lo: uint64(k.DstPort)}))
		keep(left, x.sourcePorts.find(point{lo: uint64(k.SrcPort)}))
	}
	for i := range x.places[class] {
		at := &x.places[class][i]
		if v, ok := at.place.value(header); ok {
			keep(left, at.field.find(point{lo: uint64(v)}))
		} else {
			keep(left, at.other)
		}
	}
	for w, word := range left {
		if word != 0 {
			return s.Rules[w*64+bits.TrailingZeros64(word)]
		}
	}
	return nil
}

// Encapsulated reports whether a UDP packet of this flow carries SCTP for a rule with udp_encap.
func (s *Snapshot) Encapsulated(k flow.Key) bool {
	x := &s.rules
	if len(x.encap.sets) == 0 || k.Proto != UDP {
		return false
	}
	port := x.encap.find(point{lo: uint64(k.DstPort)})
	destination := x.destinations.find(addressPoint(k.Dst))
	source := x.sources.find(addressPoint(k.Src))
	for w, word := range port {
		if word&destination[w]&source[w] != 0 {
			return true
		}
	}
	return false
}

// covers reports whether a rule may match packets to the address.
func (x *ruleIndex) covers(address [16]byte) bool {
	if x.words == 0 {
		return false
	}
	for _, word := range x.destinations.find(addressPoint(address)) {
		if word != 0 {
			return true
		}
	}
	return false
}

func keep(left, set []uint64) {
	set = set[:len(left)]
	for i := range left {
		left[i] &= set[i]
	}
}

// span is an interval of a field's values and the rule that it belongs to.
type span struct {
	first, last point
	rule        int
}

// setBuilder makes fields; equal sets are kept once.
type setBuilder struct {
	words int
	known map[string][]uint64
	name  []byte
	bytes int // of all sets and intervals made
}

// keep returns the stored copy of a set, so that equal sets share memory.
func (b *setBuilder) keep(set []uint64) []uint64 {
	b.name = b.name[:0]
	for _, word := range set {
		b.name = binary.LittleEndian.AppendUint64(b.name, word)
	}
	if one, ok := b.known[string(b.name)]; ok {
		return one
	}
	if b.bytes > maxIndexBytes {
		return set // the file will be refused
	}
	one := slices.Clone(set)
	b.known[string(b.name)] = one
	b.bytes += 2 * len(b.name)
	return one
}

// field builds a field from the spans of the rules that limit it; every other rule matches each value.
func (b *setBuilder) field(spans []span, rules int) field {
	type edge struct {
		at   point
		rule int
		by   int32
	}
	set := make([]uint64, b.words)
	for i := range rules {
		set[i/64] |= 1 << (i % 64)
	}
	edges := make([]edge, 0, 2*len(spans))
	for _, s := range spans {
		set[s.rule/64] &^= 1 << (s.rule % 64)
		edges = append(edges, edge{s.first, s.rule, 1})
		if after, last := s.last.next(); !last {
			edges = append(edges, edge{after, s.rule, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		switch {
		case a.at.less(b.at):
			return -1
		case b.at.less(a.at):
			return 1
		}
		return 0
	})
	var f field
	inside := make([]int32, rules) // spans of each rule that hold the value
	if len(edges) == 0 || edges[0].at != (point{}) {
		f.starts, f.sets = append(f.starts, point{}), append(f.sets, b.keep(set))
	}
	for i := 0; i < len(edges); {
		at := edges[i].at
		for ; i < len(edges) && edges[i].at == at; i++ {
			e := edges[i]
			if inside[e.rule] += e.by; inside[e.rule] > 0 {
				set[e.rule/64] |= 1 << (e.rule % 64)
			} else {
				set[e.rule/64] &^= 1 << (e.rule % 64)
			}
		}
		f.starts, f.sets = append(f.starts, at), append(f.sets, b.keep(set))
		b.bytes += 40
	}
	return f
}

// newRuleIndex indexes checked rules, the winner first. Bytes is the memory it takes, about.
func newRuleIndex(rules []*FlowRule, promiscuousPing bool) (x ruleIndex, bytes int) {
	if len(rules) == 0 {
		return x, 0
	}
	x.words = (len(rules) + 63) / 64
	b := setBuilder{words: x.words, known: map[string][]uint64{}}
	for class := range x.classes {
		x.classes[class] = make([]uint64, x.words)
	}
	var destinations, sources, destinationPorts, sourcePorts, encap []span
	hasEncap := false
	places := [classes]map[ByteMatch][]span{}
	for i, r := range rules {
		for class := range classes {
			if r.takes(class, promiscuousPing) {
				x.classes[class][i/64] |= 1 << (i % 64)
			}
		}
		destinations = appendPrefixes(destinations, r.Destinations, i)
		sources = appendPrefixes(sources, r.Sources, i)
		destinationPorts = appendPorts(destinationPorts, r.DestinationPorts, i)
		sourcePorts = appendPorts(sourcePorts, r.SourcePorts, i)
		hasEncap = hasEncap || r.UDPEncap != 0
		port := point{lo: uint64(cmp.Or(int(r.UDPEncap), 1<<16))} // which no packet has
		encap = append(encap, span{port, port, i})
		for _, m := range r.Match {
			class := ClassOf(m.Protocol)
			if places[class] == nil {
				places[class] = map[ByteMatch][]span{}
			}
			value := point{lo: uint64(m.Value)}
			places[class][m.place()] = append(places[class][m.place()], span{value, value, i})
		}
	}
	x.destinations, x.sources = b.field(destinations, len(rules)), b.field(sources, len(rules))
	x.destinationPorts, x.sourcePorts = b.field(destinationPorts, len(rules)), b.field(sourcePorts, len(rules))
	if hasEncap {
		x.encap = b.field(encap, len(rules))
	}
	for class, byPlace := range places {
		for place, spans := range byPlace {
			at := placeIndex{place: place, field: b.field(spans, len(rules))}
			at.other = slices.Clone(x.classes[class])
			for _, s := range spans {
				at.other[s.rule/64] &^= 1 << (s.rule % 64)
			}
			x.places[class] = append(x.places[class], at)
		}
		slices.SortFunc(x.places[class], func(a, b placeIndex) int { return comparePlaces(a.place, b.place) })
	}
	return x, b.bytes
}

func comparePlaces(a, b ByteMatch) int {
	return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Length, b.Length), cmp.Compare(a.Mask, b.Mask))
}

func appendPorts(spans []span, ranges []PortRange, rule int) []span {
	for _, r := range ranges {
		spans = append(spans, span{point{lo: uint64(r.First)}, point{lo: uint64(r.Last)}, rule})
	}
	return spans
}

// appendPrefixes appends the spans of prefixes. An IPv6 prefix that contains the IPv4-mapped addresses becomes the spans
// before and after them.
func appendPrefixes(spans []span, prefixes []netip.Prefix, rule int) []span {
	first4 := addressPoint(flow.Address(netip.AddrFrom4([4]byte{})))
	last4 := addressPoint(flow.Address(netip.AddrFrom4([4]byte{255, 255, 255, 255})))
	for _, p := range prefixes {
		s := span{rule: rule}
		s.first = addressPoint(flow.Address(p.Addr()))
		s.last = s.first
		if n := bits16(p); n < 64 {
			s.last.hi |= 1<<(64-n) - 1
			s.last.lo = ^uint64(0)
		} else {
			s.last.lo |= 1<<(128-n) - 1
		}
		if p.Addr().Is6() && !first4.less(s.first) && !s.last.less(last4) {
			before, after := s, s
			before.last = point{first4.hi, first4.lo - 1}
			after.first, _ = last4.next()
			spans = append(spans, before, after)
			continue
		}
		spans = append(spans, s)
	}
	return spans
}
