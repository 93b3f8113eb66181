package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
)

// shared writes how the state of flows is shared.
func shared(table io.Writer, s *v1.SyncStatus) {
	fmt.Fprintf(table, "sharing flows with peers: %s; %d flows given by peers and not used here\n", cmp.Or(s.Reason, "complete"), s.Given)
	fmt.Fprintln(table, "PEER\tTO IT\tSENT\tENDED\tREFUSED\tLOST\tLAG\tFROM IT\tRECEIVED\tENDED\tREFUSED")
	for i := range s.Peers {
		p := &s.Peers[i]
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%s\n", p.Address, linkText(p.Out.Connected, p.Out.Complete, p.Out.Since), p.Out.Sent, p.Out.Ended,
			p.Out.Refused, p.Out.Lost, time.Duration(p.Out.Lag*float64(time.Second)).Round(time.Millisecond), linkText(p.In.Connected, p.In.Complete, p.In.Since),
			p.In.Received, p.In.Ended, refusedText(p.In.Refused))
	}
	if s.Error != "" {
		fmt.Fprintf(table, "ERROR: %s\n", s.Error)
	}
	for i := range s.Peers {
		if p := &s.Peers[i]; p.Out.Error != "" {
			fmt.Fprintf(table, "to %s: %s\n", p.Address, p.Out.Error)
		}
		if p := &s.Peers[i]; p.In.Error != "" {
			fmt.Fprintf(table, "from %s: %s\n", p.Address, p.In.Error)
		}
	}
}

func linkText(connected, complete bool, since *time.Time) string {
	switch {
	case !connected || since == nil:
		return "not connected"
	case !complete:
		return "bulk transfer"
	}
	return "complete, " + time.Since(*since).Round(time.Second).String()
}

func refusedText(refused map[string]uint64) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(refused)) {
		parts = append(parts, fmt.Sprintf("%s %d", reason, refused[reason]))
	}
	return cmp.Or(strings.Join(parts, ", "), "0")
}
