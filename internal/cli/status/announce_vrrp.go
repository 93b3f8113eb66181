package status

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
)

// virtualRouters writes which addresses this machine holds.
func virtualRouters(table io.Writer, routers []v1.VirtualRouter) {
	if len(routers) == 0 {
		return
	}
	fmt.Fprintf(table, "\nVRID\tINTERFACE\tFAMILY\tSTATE\tSINCE\tPRIORITY\tPEER\tADDRESSES\n")
	for i := range routers {
		r := &routers[i]
		peer := "-"
		if r.Peer != nil {
			peer = fmt.Sprintf("%s priority %d", r.Peer.Address, r.Peer.Priority)
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", r.ID, r.Interface, r.Family, r.State, r.Since.Format(time.DateTime), r.Priority, peer, strings.Join(r.Addresses, ", "))
	}
	for i := range routers {
		if r := &routers[i]; r.Problem != "" || r.Reason != "" {
			fmt.Fprintf(table, "vrid %d %s %s: %s\n", r.ID, r.Interface, r.Family, cmp.Or(r.Problem, r.Reason))
		}
	}
}
