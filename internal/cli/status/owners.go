package status

import (
	"fmt"
	"io"

	v1 "github.com/weir-lb/weir/api/v1"
)

// clusterOwners writes which nodes of a service's cluster have which owner ids now.
func clusterOwners(table io.Writer, s *v1.ServiceStatus) {
	fmt.Fprintf(table, "\nservice %s follows its nodes\n", s.Name)
	printCluster(table, s.Cluster)
	ids := map[string][]uint32{}
	for i := range s.Cluster.Nodes {
		ids[s.Cluster.Nodes[i].Backend] = s.Cluster.Nodes[i].IDs
	}
	fmt.Fprintln(table, "BACKEND\tNODE IDS\tOWNER OF\tSTATE")
	for i := range s.Backends {
		b := &s.Backends[i]
		own, queried := ids[b.Name]
		text := "not queried"
		if queried {
			text = nodesText(own)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", b.Name, text, nodesText(b.Nodes), stateText(b))
	}
}

// stateText is a backend's state, with its action and with the override that the state comes from.
func stateText(b *v1.BackendStatus) string {
	state := b.State
	if b.Action != "" {
		state += ", action " + b.Action
	}
	if b.Override != "" {
		state += " (" + b.Override + ")"
	}
	return state
}

// printCluster writes what the nodes of a cluster report, and which do not.
func printCluster(table io.Writer, c *v1.ClusterStatus) {
	answering, queries := 0, uint64(0)
	var lines []string
	for i := range c.Nodes {
		n := &c.Nodes[i]
		queries += n.Queries.Passed + n.Queries.Failed
		if n.Answers {
			answering++
		}
		if n.Error != "" {
			lines = append(lines, fmt.Sprintf("%s does not answer: %s", n.Backend, n.Error))
		}
	}
	if c.Conflict != "" {
		lines = append(lines, c.Conflict)
	}
	switch {
	case queries == 0:
		fmt.Fprintf(table, "  cluster: owner ids are learned from %d nodes\n", len(c.Nodes))
	case c.Old:
		fmt.Fprintf(table, "  cluster: OLD, no node has answered for %.0f s; the last view stays\n", c.Age)
	default:
		fmt.Fprintf(table, "  cluster: %d of %d nodes answer, the newest answer is %.1f s old\n", answering, len(c.Nodes), c.Age)
	}
	for _, line := range lines {
		fmt.Fprintf(table, "  cluster: %s\n", line)
	}
}
