// Package finding is what a doctor reports: one result of each check, with the command that repairs it. A [Collector] collects them while [Run]
// runs the checks; what is checked is in the packages that know it. `weir doctor`,
// `weir tcp doctor` and the measurements that examine the machine first print the same table and the same JSON.
package finding

import (
	"fmt"
	"io"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
)

// Level and Finding are public types.
type (
	Level   = v1.FindingLevel
	Finding = v1.Finding
)

// The levels.
const (
	OK   = v1.FindingOK
	Warn = v1.FindingWarn // works, but worse than possible, or not always
	Fail = v1.FindingFail // packets are lost, or what is wanted does not fit
)

// Worst returns the highest level of the findings, OK without any.
func Worst(findings []Finding) Level {
	worst := OK
	for _, f := range findings {
		worst = max(worst, f.Level)
	}
	return worst
}

// Print writes the table that people read.
func Print(w io.Writer, findings []Finding) error {
	table := terminal.NewTable(w, false)
	fmt.Fprintln(table, "LEVEL\tCHECK\tFINDING")
	for _, f := range findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Level, f.Check, f.What)
		if f.Remedy != "" {
			fmt.Fprintf(table, "\t\tremedy: %s\n", f.Remedy)
		}
	}
	return table.Flush()
}
