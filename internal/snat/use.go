package snat

import (
	"cmp"
	"math"
	"slices"
)

// uses fills the table of stages and finds what breaks first and next.
func (s Scenario) uses(stages []stage, nodes []nodeFlow, p *Plan) {
	reaches := int64(0) // what the client side lets through
	for _, n := range nodes {
		reaches += n.holds
	}
	for _, st := range stages {
		u := StageUse{
			Name: st.name, Kind: string(st.kind), Level: st.level.String(), Key: st.key, Keys: st.keys * st.owners, PerKey: st.perKey,
			Capacity: st.total(), Transient: st.arrives > 0 || st.kind == AcceptQueue,
		}
		switch {
		case u.Transient:
			u.Pressure = ratio(st.arrives, st.perKey)
			u.Used = min(u.Pressure, 1)
		case st.level == replicaLevel:
			u.Pressure = ratio(s.Connections, st.of(0))
			u.Used = u.Pressure * ratio(p.Holds, p.Demand)
		case st.level == nodeLevel:
			for i, n := range nodes {
				u.Pressure = max(u.Pressure, ratio(n.wants, st.of(int64(i))))
				u.Used = max(u.Used, ratio(n.holds, st.of(int64(i)))*ratio(p.Holds, reaches))
			}
		default:
			u.Pressure, u.Used = ratio(p.Demand, st.total()), ratio(p.Holds, st.total())
		}
		u.Used = min(u.Used, 1)
		if !u.Transient && u.Pressure > 0 && st.perKey < unbounded {
			u.BreaksAt = int64(math.Round(float64(p.Demand) / u.Pressure))
		}
		p.Stages = append(p.Stages, u)
	}
	order := ranked(p.Stages)
	if len(order) > 0 {
		p.First = order[0].Name
	}
	if len(order) > 1 {
		p.Next = order[1].Name
	}
}

// ranked is the stages that bound what is held, tightest first.
func ranked(all []StageUse) []StageUse {
	held := slices.DeleteFunc(slices.Clone(all), func(u StageUse) bool { return u.Transient || u.PerKey >= unbounded })
	slices.SortStableFunc(held, func(a, b StageUse) int { return -cmp.Compare(a.Pressure, b.Pressure) })
	return held
}

// ratio is a share; of nothing, all that is asked is infinitely too much.
func ratio(part, whole int64) float64 {
	if whole == 0 {
		if part == 0 {
			return 0
		}
		return 1e9 // JSON has no infinity
	}
	return float64(part) / float64(whole)
}
