package status

import (
	"fmt"
	"io"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// Flows writes `weir lb flows`.
func Flows(w io.Writer, list *v1.FlowList) error {
	table := terminal.NewTable(w, false)
	fmt.Fprintln(table, "PROTOCOL\tCLIENT\tVIP\tSERVICE\tBACKEND\tEXPIRES\tSTATE")
	for _, f := range list.Flows {
		expires := "never"
		if f.Expires >= 0 {
			expires = time.Duration(f.Expires * float64(time.Second)).Round(time.Second).String()
		}
		backend := f.Backend
		if f.Source != "" {
			backend += " as " + f.Source
		}
		state := f.State
		if f.Given {
			state += ", given"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Protocol, f.Client, f.VIP, f.Service, backend, expires, state)
	}
	if list.More {
		fmt.Fprintln(table, "… and more; raise --limit or filter")
	}
	return table.Flush()
}
