package stats

import "time"

// All is the id of the sum of all reporters.
const All = "all"

// History returns the last span of a reporter, by its key, or of All: up to an hour in steps of a second, above in steps of ten
// (means). False: no such reporter.
func (s *Service) History(id string, span time.Duration) (History, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.all
	if id != All {
		r := s.reporters[id]
		if r == nil {
			return History{}, false
		}
		h = r.history
	}
	from, step := &h.fine, fineStep
	if span > finePoints*fineStep {
		from, step = &h.coarse, coarseStep
	}
	last := from.next()
	n := min(int64(span/step), int64(len(from.points)))
	points := make([]point, 0, n)
	for at := last - n; at < last; at++ {
		points = append(points, *from.at(at))
	}
	column := func(value func(*point) *float32) []*float32 {
		all := make([]*float32, len(points))
		for i := range points {
			if points[i].present {
				all[i] = value(&points[i])
			}
		}
		return all
	}
	return History{
		ID: id, Step: step.Seconds(), End: s.started.Add(time.Duration(last) * step),
		Clients:     column(func(p *point) *float32 { return &p.clients }),
		Servers:     column(func(p *point) *float32 { return &p.servers }),
		Opened:      column(func(p *point) *float32 { return &p.opened }),
		Lost:        column(func(p *point) *float32 { return &p.lost }),
		Reconnected: column(func(p *point) *float32 { return &p.reconnected }),
		Failed:      column(func(p *point) *float32 { return &p.failed }),
	}, true
}
