package status

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// ClusterOf is what a CoAP server's status says about the cluster nodes that it runs; it has no nodes if the server runs none.
func ClusterOf(status *v1.CoAPStatus) *v1.CoAPClusterView {
	view := &v1.CoAPClusterView{Nodes: []v1.CoAPClusterNode{}}
	for i := range status.Listeners {
		l := &status.Listeners[i]
		if l.Cluster == nil || l.NodeID == nil {
			continue
		}
		view.Nodes = append(view.Nodes, v1.CoAPClusterNode{
			ID: *l.NodeID, URI: l.URI, Management: l.Management, Sessions: l.Engine.Sessions, Members: l.Nodes, Counters: *l.Cluster, Copies: l.Copies,
			Moves: l.Moves, Discovery: status.Discovery,
		})
	}
	return view
}

// Cluster writes `weir coap cluster show`: totals at first, then rates since the look before.
type Cluster struct {
	last map[uint32]v1.CoAPCluster // by node id
	at   time.Time
}

// Write writes the members of the cluster and what each own node exchanged with them, as of a time.
func (c *Cluster) Write(w io.Writer, view *v1.CoAPClusterView, at time.Time) error {
	table := terminal.NewTable(w, false)
	for i := range view.Nodes {
		n := &view.Nodes[i]
		fmt.Fprintf(table, "node %d at %s, %s\n", n.ID, n.URI, terminal.Quantity(int(n.Sessions), "session"))
		fmt.Fprintln(table, "ID\tMANAGEMENT\tSTATE\tLINK\tSILENT")
		for j := range n.Members {
			writeMember(table, &n.Members[j])
		}
		table.End()
	}
	c.writeCounters(table, view, at)
	writeMoves(table, view)
	writeCopies(table, view)
	writeDiscovery(table, view)
	return table.Flush()
}

// writeMoves writes a row for each own node whose sessions can move, and which node has the sessions of a node id that is not its own.
func writeMoves(table *terminal.Table, view *v1.CoAPClusterView) {
	rows(table, view, "\nMOVES\tSTATE\tSESSIONS\tUNDER WAY\tMOVED OUT\tMOVED IN\tLOST\tREFUSED\tIDS ELSEWHERE", func(n *v1.CoAPClusterNode) string {
		m := n.Moves
		if m == nil {
			return ""
		}
		state, elsewhere := "serves", ""
		switch {
		case m.Drained:
			state = "drained"
		case m.Draining && m.To != nil:
			state = fmt.Sprintf("drains to node %d", *m.To)
		case m.Draining:
			state = "drains"
		}
		for _, o := range m.Owners {
			if o.Shard != o.Owner {
				elsewhere += fmt.Sprintf(" %d at node %d,", o.Shard, o.Owner)
			}
		}
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s", state, m.Sessions, m.Transit, m.Out, m.In, m.Lost, m.Refused, cmp.Or(strings.Trim(elsewhere, " ,"), "none"))
	})
}

// writeDiscovery writes a row for each own node whose cluster is Pods.
func writeDiscovery(table *terminal.Table, view *v1.CoAPClusterView) {
	rows(table, view, "\nDISCOVERY\tPODS\tREADY\tCHANGES\tERRORS\tAPI SERVER", func(n *v1.CoAPClusterNode) string {
		d := n.Discovery
		if d == nil {
			return ""
		}
		server := "answers"
		if d.Error != "" {
			server = "fails"
		}
		return fmt.Sprintf("%d\t%d\t%d\t%d\t%s", d.Pods, d.Ready, d.Changes, d.Errors, server)
	})
}

// rows writes what row says of each own node, where it says something, below a header.
func rows(table *terminal.Table, view *v1.CoAPClusterView, header string, row func(*v1.CoAPClusterNode) string) {
	some := false
	for i := range view.Nodes {
		text := row(&view.Nodes[i])
		if text == "" {
			continue
		}
		if !some {
			fmt.Fprintln(table, header)
		}
		fmt.Fprintf(table, "  node %d\t%s\n", view.Nodes[i].ID, text)
		some = true
	}
	if some {
		table.End()
	}
}

// writeCopies writes a row for each own node that copies its sessions to another one.
func writeCopies(table *terminal.Table, view *v1.CoAPClusterView) {
	rows(table, view, "\nREPLICATION\tCOPIED TO\tSESSIONS\tBEHIND\tCOPIES HERE\tTAKEN OVER\tSTORE", func(n *v1.CoAPClusterNode) string {
		r := n.Copies
		if r == nil {
			return ""
		}
		to, store := "none", "answers"
		if r.Buddy != nil {
			to = fmt.Sprintf("node %d", *r.Buddy)
		}
		if r.StoreError != "" {
			store = "fails"
		}
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%s", to, r.Sessions, r.Behind, r.Copies, r.TakenOver, strings.TrimSpace(r.Store+" "+store))
	})
}

func writeMember(w io.Writer, m *v1.CoAPNode) {
	id, link, silent := "?", "plain", "-"
	if m.ID != nil {
		id = strconv.FormatUint(uint64(*m.ID), 10)
	}
	if m.Secured {
		link = "secured"
	}
	switch {
	case m.State == "self":
		link = "-"
	case m.State == "up" || m.State == "down":
		silent = fmt.Sprintf("%.1fs", m.Silent)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", id, m.Management, m.State, link, silent)
}

// writeCounters writes a row of counters for each own node.
func (c *Cluster) writeCounters(table *terminal.Table, view *v1.CoAPClusterView, at time.Time) {
	per := rates{}
	if c.last != nil {
		per = rates{"/s", at.Sub(c.at).Seconds()}
	}
	var rows []line
	current := map[uint32]v1.CoAPCluster{}
	for i := range view.Nodes {
		n := &view.Nodes[i]
		now, then := n.Counters, c.last[n.ID]
		current[n.ID] = now
		rows = append(rows, line{name: fmt.Sprintf("node %d", n.ID), pairs: [][2]uint64{
			{now.Forwarded, then.Forwarded},
			{now.ProcessedForwarded, then.ProcessedForwarded},
			{now.Backwarded, then.Backwarded},
			{now.SentBackwarded, then.SentBackwarded},
			{now.DroppedForward + now.DroppedBackward, then.DroppedForward + then.DroppedBackward},
			{now.BadForward + now.BadBackward, then.BadForward + then.BadBackward},
			{now.Strangers, then.Strangers},
			{now.RefusedTargets, then.RefusedTargets},
		}})
	}
	c.last, c.at = current, at
	per.block(table, "\nEXCHANGED", []string{"FORWARDED", "TAKEN", "BACKWARDED", "SENT ON", "DROPPED", "BAD MAC", "STRANGERS", "REFUSED"}, nil, rows)
}
