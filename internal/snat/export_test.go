package snat

// MaxFlow draws the path out as a network, replica by replica, and pushes connections through it along augmenting paths.
// It shares the stages' capacities with Plan, and nothing of its arithmetic.
func MaxFlow(s Scenario) int64 {
	type edge struct {
		to   int
		room int64
	}
	var edges []edge
	var out [][]int
	vertex := func() int { out = append(out, nil); return len(out) - 1 }
	join := func(from, to int, room int64) {
		out[from] = append(out[from], len(edges))
		edges = append(edges, edge{to, room})
		out[to] = append(out[to], len(edges))
		edges = append(edges, edge{from, 0})
	}
	stages := s.stages()
	through := func(at int, l level, owner int64) int {
		for _, st := range stages {
			if st.level == l && st.kind != AcceptQueue {
				next := vertex()
				join(at, next, st.of(owner))
				at = next
			}
		}
		return at
	}
	source, sink, meet := vertex(), vertex(), vertex()
	nodes := make([]int, s.Nodes)
	for i := range nodes {
		nodes[i] = vertex()
		join(through(nodes[i], nodeLevel, int64(i)), meet, 1<<50)
	}
	for r := range s.Replicas {
		first := vertex()
		join(source, first, s.Connections)
		join(through(first, replicaLevel, int64(r)), nodes[r%s.Nodes], 1<<50)
	}
	behind := through(meet, natLevel, 0)
	spread := vertex()
	for i := range int64(s.ServerNodes) {
		at := vertex()
		join(behind, at, 1<<50)
		join(through(at, serverNodeLevel, i), spread, 1<<50)
	}
	for i := range int64(s.Servers) {
		at := vertex()
		join(spread, at, 1<<50)
		join(through(at, serverLevel, i), sink, 1<<50)
	}
	var push func(at int, seen []bool, room int64) int64
	push = func(at int, seen []bool, room int64) int64 {
		if at == sink {
			return room
		}
		seen[at] = true
		for _, e := range out[at] {
			if to := edges[e].to; edges[e].room > 0 && !seen[to] {
				if got := push(to, seen, min(room, edges[e].room)); got > 0 {
					edges[e].room -= got
					edges[e^1].room += got
					return got
				}
			}
		}
		return 0
	}
	total := int64(0)
	for {
		got := push(source, make([]bool, len(out)), 1<<60)
		if got == 0 {
			return total
		}
		total += got
	}
}
