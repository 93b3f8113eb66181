package status

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
)

// ConfigAnswer writes what a change of the configuration did.
func ConfigAnswer(w io.Writer, a *v1.ConfigAnswer) error {
	var b strings.Builder
	writeDifferences(&b, a.Differences, a.More)
	for i := range a.Services {
		s := &a.Services[i]
		fmt.Fprintf(&b, "would compile to: service %s %s %s, %s backends up\n", s.Name, s.State, strings.Join(s.VIPs, ", "), BackendsUp(s))
		for j := range s.Backends {
			backend := &s.Backends[j]
			fmt.Fprintf(&b, "  %s %s weight %d, %.1f %% of new flows\n", backend.Name, backend.Address, backend.Weight, 100*backend.Share)
		}
	}
	what := "unchanged"
	switch {
	case a.DryRun && a.Changed:
		what = "dry run: nothing is changed"
	case a.DryRun:
		what = "dry run: nothing would change"
	case a.Changed:
		what = "in force"
	}
	fmt.Fprintf(&b, "configuration %d (%s): %s", a.Generation, a.ETag, what)
	switch {
	case a.WriteError != "":
		fmt.Fprintf(&b, "; the file is not written: %s", a.WriteError)
	case a.Written:
		b.WriteString(", written to " + a.File)
	case a.Unsaved && !a.DryRun:
		b.WriteString("; not in the file: weir lb diff, save, revert")
	}
	_, err := io.WriteString(w, b.String()+"\n")
	return err
}

// ConfigSaved writes what `weir lb save` did.
func ConfigSaved(w io.Writer, a *v1.ConfigAnswer) error {
	text := "nothing to save: " + a.File + " has it already"
	if a.Written {
		text = "written to " + a.File
	}
	_, err := fmt.Fprintf(w, "configuration %d (%s): %s\n", a.Generation, a.ETag, text)
	return err
}

// ConfigReverted writes what `weir lb revert` did.
func ConfigReverted(w io.Writer, a *v1.ConfigAnswer) error {
	var b strings.Builder
	writeDifferences(&b, a.Differences, a.More)
	text := "nothing to revert: it is what " + a.File + " says"
	if a.Changed {
		text = "in force, as " + a.File + " says"
	}
	fmt.Fprintf(&b, "configuration %d (%s): %s\n", a.Generation, a.ETag, text)
	_, err := io.WriteString(w, b.String())
	return err
}

// ConfigDiff writes how the configuration in force differs from its file.
func ConfigDiff(w io.Writer, d *v1.ConfigDiff) error {
	var b strings.Builder
	writeDifferences(&b, d.Differences, d.More)
	if len(d.Differences) == 0 {
		fmt.Fprintf(&b, "configuration %d is what %s says\n", d.Generation, d.File)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Configuration writes a configuration in force, whose value is already YAML.
func Configuration(w io.Writer, c *v1.Configuration, yaml []byte) error {
	saved := ""
	if c.Unsaved {
		saved = ", not in the file: weir lb diff"
	}
	_, err := fmt.Fprintf(w, "# configuration %d (%s) %s%s\n%s", c.Generation, c.ETag, c.Path, saved, yaml)
	return err
}

// ConfigEvent writes a configuration that came into force.
func ConfigEvent(w io.Writer, e *v1.ConfigEvent) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s configuration %d: %s by %s\n", e.At.Format(time.RFC3339), e.Generation, e.Action, e.By)
	writeDifferences(&b, e.Differences, e.More)
	for _, path := range e.Dropped {
		fmt.Fprintf(&b, "! %s: the run-time change has ended, the file says otherwise\n", path)
	}
	if e.Missed > 0 {
		fmt.Fprintf(&b, "! %d configurations before are not shown\n", e.Missed)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeDifferences(b *strings.Builder, all []v1.ConfigDifference, more int) {
	for _, d := range all {
		switch {
		case d.Old == nil:
			fmt.Fprintf(b, "+ %s %s\n", d.Path, oneLine(d.New))
		case d.New == nil:
			fmt.Fprintf(b, "- %s %s\n", d.Path, oneLine(d.Old))
		default:
			fmt.Fprintf(b, "~ %s %s -> %s\n", d.Path, oneLine(d.Old), oneLine(d.New))
		}
	}
	if more > 0 {
		fmt.Fprintf(b, "… and %d more differences\n", more)
	}
}

func oneLine(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
