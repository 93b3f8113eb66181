// Package finding is what a doctor reports: one result of each check, with the command that repairs it. `weir doctor`,
// `weir tcp doctor` and the measurements that examine the machine first print the same table and the same JSON.
package finding

import (
	"fmt"
	"io"
	"slices"

	"github.com/weir-lb/weir/internal/terminal"
)

// Level is the severity of a finding. A higher level is worse.
type Level uint8

const (
	OK   Level = iota
	Warn       // works, but worse than possible, or not always
	Fail       // packets are lost, or what is wanted does not fit
)

func levels() []string { return []string{"ok", "warn", "fail"} }

// String is ok, warn or fail.
func (l Level) String() string { return levels()[l] }

// MarshalText writes String.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads String.
func (l *Level) UnmarshalText(text []byte) error {
	i := slices.Index(levels(), string(text))
	if i < 0 {
		return fmt.Errorf("level %q of a finding: want ok, warn or fail", text)
	}
	*l = Level(i)
	return nil
}

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Have and Need are of a limit: its value, and the one that is wanted.
	Have   uint64 `json:"have,omitempty"`
	Need   uint64 `json:"need,omitempty"`
	What   string `json:"what"`
	Remedy string `json:"cure,omitempty"` // a shell command; empty when all is well
}

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
