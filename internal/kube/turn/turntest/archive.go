// Package turntest has what tests of package turn share: cases in the text archive format, worlds from YAML, and an API server's part of applying
// a result.
package turntest

import (
	"fmt"
	"strings"
)

// Archive is a comment and named sections ("-- name --" lines), in their order.
type Archive struct {
	Comment  string
	names    []string
	sections map[string]string
}

// Parse reads an archive.
func Parse(text []byte) *Archive {
	a := &Archive{sections: map[string]string{}}
	name := ""
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "-- ") && strings.HasSuffix(trimmed, " --"):
			name = trimmed[3 : len(trimmed)-3]
			a.Set(name, "")
		case name == "":
			a.Comment += line
		default:
			a.sections[name] += line
		}
	}
	return a
}

// Section returns a section; empty if there is none.
func (a *Archive) Section(name string) string { return a.sections[name] }

// Set replaces a section, or adds one.
func (a *Archive) Set(name, text string) {
	if _, ok := a.sections[name]; !ok {
		a.names = append(a.names, name)
	}
	a.sections[name] = text
}

// Format is the text that Parse reads.
func (a *Archive) Format() []byte {
	var out strings.Builder
	out.WriteString(a.Comment)
	for _, name := range a.names {
		fmt.Fprintf(&out, "-- %s --\n%s", name, a.sections[name])
	}
	return []byte(out.String())
}
