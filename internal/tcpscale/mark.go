package tcpscale

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

// maxMarks bounds what a run can distinguish; later ones count into the last.
const maxMarks = 64

// marks are a client's, with the moments of its loop's clock that they stand for.
type marks struct {
	all []Mark
	at  time.Duration // of the last
}

func (m *marks) set(name string, now time.Duration) {
	if len(m.all) == maxMarks {
		return
	}
	m.at = now
	m.all = append(m.all, Mark{
		Name: name, LostBy: map[string]uint64{}, Kinds: map[string]uint64{}, LostAfter: measure.NewLatency(), BackAfter: measure.NewLatency(),
	})
}

func (m *marks) last() *Mark {
	if len(m.all) == 0 {
		return nil
	}
	return &m.all[len(m.all)-1]
}

func (m *marks) lost(peer string, kind Failure, now time.Duration) {
	if k := m.last(); k != nil {
		k.Lost, k.Full = k.Lost+1, 0 // where two processes die, all may be back before the second one's are lost
		k.LostBy[peer]++
		k.Kinds[kind.String()]++
		k.LostAfter.Record(now - m.at)
	}
}

func (m *marks) moved() {
	if k := m.last(); k != nil {
		k.Moved, k.Full = k.Moved+1, 0
	}
}

// back is a connection established again that was lost at a time of the loop's clock.
func (m *marks) back(lost, now time.Duration) {
	if k := m.last(); k != nil && lost >= m.at {
		k.Back++
		k.BackAfter.Record(now - m.at)
	}
}

// full: everything of this worker's target is established.
func (m *marks) full(now time.Duration) {
	if k := m.last(); k != nil && k.Full == 0 && k.Lost+k.Moved > 0 {
		k.Full = (now - m.at).Seconds()
	}
}

// mergeMarks adds up those of the same place in the order; workers that had nothing to lose do not delay the whole.
func mergeMarks(sum, more []Mark) []Mark {
	for i := range more {
		if i == len(sum) {
			sum = append(sum, Mark{Name: more[i].Name, LostBy: map[string]uint64{}, Kinds: map[string]uint64{}})
		}
		s, m := &sum[i], &more[i]
		if m.Lost+m.Moved > 0 && s.Lost+s.Moved > 0 && min(s.Full, m.Full) == 0 {
			s.Full = 0 // one that is not full: nor is the sum
		} else {
			s.Full = max(s.Full, m.Full)
		}
		s.Lost, s.Moved, s.Back = s.Lost+m.Lost, s.Moved+m.Moved, s.Back+m.Back
		for peer, n := range m.LostBy {
			s.LostBy[peer] += n
		}
		for kind, n := range m.Kinds {
			s.Kinds[kind] += n
		}
		s.LostAfter, s.BackAfter = mergeLatency(s.LostAfter, m.LostAfter), mergeLatency(s.BackAfter, m.BackAfter)
	}
	return sum
}

// Shares are the connections of each peer by id, of all generations, in the order of ids.
func Shares(r *Report) []Peer {
	var shares []Peer
	for _, p := range r.Peers {
		i, ok := slices.BinarySearchFunc(shares, p.ID, func(s Peer, id string) int { return cmp.Compare(s.ID, id) })
		if !ok {
			shares = slices.Insert(shares, i, Peer{ID: p.ID, Zone: p.Zone})
		}
		shares[i].Connections += p.Connections
	}
	return shares
}
