package status

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// Announce writes `weir lb announce`.
func Announce(w io.Writer, status *v1.AnnounceStatus) error {
	table := terminal.NewTable(w, false)
	announced(table, status)
	return table.Flush()
}

// announced writes what is announced, and to whom.
func announced(table io.Writer, a *v1.AnnounceStatus) {
	fmt.Fprintf(table, "announcing: %s\nPREFIX\tSTATE\tSERVICES\tREASON\n", a.State)
	for _, p := range a.Prefixes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", p.Prefix, p.State, strings.Join(p.Services, ", "), cmp.Or(p.Reason, "-"))
	}
	if a.Error != "" {
		fmt.Fprintf(table, "ERROR: %s\n", a.Error)
	}
	virtualRouters(table, a.VRRP)
	b := a.BGP
	if b == nil {
		return
	}
	fmt.Fprintf(table, "\nBGP: AS %d, router id %s\nNEIGHBOUR\tAS\tSTATE\tFOR\tBFD\tADVERTISED\tRECEIVED\tLOST SESSIONS\n", b.AS, b.RouterID)
	for i := range b.Neighbours {
		n := &b.Neighbours[i]
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%d\t%d\t%d\n", n.Address, n.AS, n.State, time.Since(n.Since).Round(time.Second), cmp.Or(n.BFD, "-"), n.Advertised, n.Received, n.Losses)
	}
	for i := range b.Neighbours {
		if n := &b.Neighbours[i]; n.Problem != "" {
			fmt.Fprintf(table, "%s: %s\n", n.Address, n.Problem)
		}
	}
	if len(b.Filtered) > 0 {
		fmt.Fprintf(table, "NOT ANNOUNCED, a policy of the BGP speaker drops them: %s\n", strings.Join(b.Filtered, ", "))
	}
}
