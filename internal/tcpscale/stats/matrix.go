package stats

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/weir-lb/weir/api/v1"
)

const (
	matrixColumns = 64
	matrixRows    = 512
)

func matrixOf(servers, clients []row) Matrix {
	cells := map[string]map[string]int{} // client name → server id → connections
	byPeer := map[string]bool{}
	columns := map[string]int{}
	add := func(client, server string, n int) {
		if cells[client] == nil {
			cells[client] = map[string]int{}
		}
		cells[client][server] += n
		columns[server] += n
	}
	runs := map[string]bool{}
	for i := range clients {
		if c := &clients[i]; c.State == StateLive {
			runs[c.Run] = true
			for _, p := range c.report.Peers {
				add(c.Name, p.ID, p.Connections)
			}
		}
	}
	for i := range servers {
		if s := &servers[i]; s.State == StateLive {
			columns[s.ID] += 0 // also one that no one has connected to
			for _, p := range s.report.Peers {
				run, _, _ := strings.Cut(p.ID, "/") // RUN/CLIENT: one reporter may be several clients
				if !runs[run] {
					client := "run " + run
					byPeer[client] = true
					add(client, s.ID, p.Connections)
				}
			}
		}
	}
	return arrange(cells, columns, byPeer)
}

func arrange(cells map[string]map[string]int, columns map[string]int, byPeer map[string]bool) Matrix {
	ids := slices.SortedFunc(maps.Keys(columns), func(a, b string) int {
		return cmp.Or(cmp.Compare(columns[b], columns[a]), cmp.Compare(a, b))
	})
	shown := slices.Clone(ids[:min(len(ids), matrixColumns)])
	slices.Sort(shown) // columns stay where they are while counts change
	m := Matrix{Servers: shown, Others: len(ids) - len(shown), Rows: []v1.TCPMatrixRow{}}
	if m.Servers == nil {
		m.Servers = []string{}
	}
	for _, client := range slices.Sorted(maps.Keys(cells)) {
		if len(m.Rows) == matrixRows {
			m.Hidden = len(cells) - matrixRows
			break
		}
		row := v1.TCPMatrixRow{Client: client, ByPeer: byPeer[client], Cells: make([]int, len(shown))}
		for server, n := range cells[client] {
			row.Sum += n
			if i, found := slices.BinarySearch(shown, server); found {
				row.Cells[i] = n
			} else {
				row.Others += n
			}
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}
