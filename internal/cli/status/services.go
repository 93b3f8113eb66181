package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// Services writes compiled services, and the tier if there is one, for people.
func Services(w io.Writer, services []v1.ServiceStatus, tier []v1.MemberStatus) error {
	table := terminal.NewTable(w, false)
	if len(services) == 0 {
		fmt.Fprintln(table, "no services: nothing is balanced")
	}
	for i := range services {
		if i > 0 {
			fmt.Fprintln(table)
		}
		printOptions(table, &services[i])
		printBackends(table, &services[i])
	}
	if len(tier) > 0 {
		printTier(table, tier)
	}
	return table.Flush()
}

// printOptions writes what a service does, a line each.
func printOptions(table io.Writer, s *v1.ServiceStatus) {
	mode := s.Mode
	if s.Tunnel != "" {
		mode += " over " + s.Tunnel
	}
	fmt.Fprintf(table, "service %s: %s, affinity %s, %s\n", s.Name, mode, s.Affinity, s.State)
	if len(s.VIPs) > 0 {
		fmt.Fprintf(table, "  VIPs: %s\n", strings.Join(s.VIPs, ", "))
	}
	for _, f := range s.Flows {
		fmt.Fprintf(table, "  flow rule %d: %s\n", f.Place, f.Rule)
	}
	for j, layout := range s.CID {
		number := ""
		if len(s.CID) > 1 {
			number = fmt.Sprintf(" layout %d", j)
		}
		fmt.Fprintf(table, "  CID%s: %s\n", number, layout)
	}
	if s.SNAT != "" {
		fmt.Fprintf(table, "  source: %s\n", s.SNAT)
	}
	if s.Health != "" {
		fmt.Fprintf(table, "  health: %s\n", s.Health)
	}
	if s.Cluster != nil {
		printCluster(table, s.Cluster)
	}
	if s.NewFlowRate > 0 {
		fmt.Fprintf(table, "  new flows: at most %d per second\n", s.NewFlowRate)
	}
	if s.Hashing != "" {
		fmt.Fprintf(table, "  hashing: %s\n", s.Hashing)
	}
	if e := s.EarlierTables; e != nil {
		fmt.Fprintf(table, "  earlier tables: %s\n", earlierText(e))
	}
	if s.NoBackendMark != nil {
		fmt.Fprintf(table, "  without backend: mark %#x\n", *s.NoBackendMark)
	}
	if len(s.Timeouts) > 0 {
		fmt.Fprintf(table, "  idle time-outs: %s\n", timeoutsText(s.Timeouts))
	}
}

// earlierText says which earlier Maglev tables are in use, and until when.
func earlierText(e *v1.EarlierTables) string {
	if e.Count == 0 {
		return "none in use"
	}
	var until []string
	for i := range e.Tables {
		until = append(until, e.Tables[i].Until.Local().Format(time.TimeOnly))
	}
	return fmt.Sprintf("%d in use, until %s; another backend in %.1f%% of the slots", e.Count, strings.Join(until, " and "), 100*e.Share)
}

func printBackends(table io.Writer, s *v1.ServiceStatus) {
	fmt.Fprintln(table, "  BACKEND\tADDRESS\tWEIGHT\tSHARE\tSTATE\tNODES")
	for j := range s.Backends {
		b := &s.Backends[j]
		fmt.Fprintf(table, "  %s\t%s\t%d\t%.1f%%\t%s\t%s\n", b.Name, backendAddress(b), b.Weight, 100*b.Share, stateText(b), layoutNodesText(b))
	}
}

func printTier(table io.Writer, tier []v1.MemberStatus) {
	fmt.Fprintln(table, "\ntier of balancers, for fragments")
	fmt.Fprintln(table, "  MEMBER\tMARK\tSHARE\t")
	for _, m := range tier {
		mark := fmt.Sprintf("%#x", m.Mark)
		if m.Index != nil {
			mark += fmt.Sprintf(" index %d", *m.Index)
		}
		fmt.Fprintf(table, "  %s\t%s\t%.1f%%\t%s\n", m.Name, mark, 100*m.Share, map[bool]string{true: "this one"}[m.Self])
	}
}

// addressesText is what clients address, on one line.
func addressesText(s *v1.ServiceStatus) string {
	parts := slices.Clone(s.VIPs)
	switch n := len(s.Flows); n {
	case 0:
	case 1:
		parts = append(parts, "1 flow rule")
	default:
		parts = append(parts, fmt.Sprintf("%d flow rules", n))
	}
	return strings.Join(parts, ", ")
}

func backendAddress(b *v1.BackendStatus) string {
	text := b.Address
	if b.Address2 != "" {
		text += " " + b.Address2
	}
	if b.Port != 0 {
		text += fmt.Sprintf(" port %d", b.Port)
	}
	if b.Mark != 0 {
		text = strings.TrimSpace(fmt.Sprintf("%s mark %#x", text, b.Mark))
	}
	if b.Index != nil {
		text += fmt.Sprintf(" index %d", *b.Index)
	}
	return text
}

func timeoutsText(timeouts map[string]string) string {
	var parts []string
	for _, key := range []string{"udp", "tcp_opening", "tcp_established", "tcp_closing", "sctp"} {
		if value, ok := timeouts[key]; ok {
			parts = append(parts, key+" "+value)
		}
	}
	return strings.Join(parts, ", ")
}

// layoutNodesText is a backend's owner ids, by layout where layouts have nodes of their own.
func layoutNodesText(b *v1.BackendStatus) string {
	if b.LayoutNodes == nil {
		return nodesText(b.Nodes)
	}
	var parts []string
	for i, nodes := range b.LayoutNodes {
		if len(nodes) > 0 {
			parts = append(parts, fmt.Sprintf("layout %d: %s", i, nodesText(nodes)))
		}
	}
	if len(parts) == 0 {
		return nodesText(nil)
	}
	return strings.Join(parts, "; ")
}

// nodesText shortens a list of owner ids.
func nodesText(nodes []uint32) string {
	if len(nodes) == 0 {
		return "-"
	}
	const maximum = 8
	var parts []string
	for _, id := range nodes[:min(len(nodes), maximum)] {
		parts = append(parts, fmt.Sprint(id))
	}
	text := strings.Join(parts, ",")
	if len(nodes) > maximum {
		text += fmt.Sprintf(",… (%d)", len(nodes))
	}
	return text
}
