package cluster

import "github.com/weir-lb/weir/internal/coap/cluster/membership"

// Liveness is what is known about a node.
type Liveness string

// States of a node.
const (
	Self     Liveness = "self"
	Searched Liveness = "searched" // an address at which no node has answered
	Unknown  Liveness = "unknown"  // no message yet; may be a Californium static node, which answers no ping
	Up       Liveness = "up"
	Down     Liveness = "down" // was up, then silent for 10 s
)

// NodeStatus is one row of [Cluster.Status].
type NodeStatus struct {
	ID         *uint32  `json:"id,omitempty"` // nil: not known yet
	Management string   `json:"management"`
	State      Liveness `json:"state"`
	Secured    bool     `json:"secured"`  // there is a DTLS session with it
	Silent     float64  `json:"silent_s"` // seconds since its newest message; 0 when unknown or self
}

// Status lists the nodes, self first, as of the latest message or tick (at most 2 s ago).
func (c *Cluster) Status() []NodeStatus {
	rows := []NodeStatus{{ID: &c.self, Management: c.address.String(), State: Self}}
	known := c.view.Load().byAddr
	c.mu.Lock()
	members := c.table.Members()
	c.mu.Unlock()
	for i := range members {
		m := &members[i]
		row := NodeStatus{Management: m.Addr.String(), State: liveness(m), Secured: known[m.Addr].keys() != nil}
		if m.Known {
			row.ID = &m.ID
		}
		if m.Answered {
			row.Silent = m.Silent.Seconds()
		}
		rows = append(rows, row)
	}
	return rows
}

func liveness(m *membership.Member) Liveness {
	switch {
	case !m.Known:
		return Searched
	case !m.Answered:
		return Unknown
	case m.Up:
		return Up
	}
	return Down
}

// ByState counts nodes.
func ByState(rows []NodeStatus) map[Liveness]int {
	counts := map[Liveness]int{Searched: 0, Unknown: 0, Up: 0, Down: 0}
	for i := range rows {
		counts[rows[i].State]++
	}
	return counts
}

// Ready reports whether every address had a node that answers at least once since the start.
func (c *Cluster) Ready() bool { return membership.State(c.state.Load()) >= membership.StateUp }
