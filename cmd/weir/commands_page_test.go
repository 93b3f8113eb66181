package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/commands.md anew")

// commandTable is a row for each command, with its page.
func commandTable() string {
	var b strings.Builder
	b.WriteString("| command | what it does |\n|---|---|\n")
	for _, cmd := range commands() {
		if cmd.HasSubCommands() || strings.HasPrefix(cmd.CommandPath(), "weir completion") || cmd.Name() == "help" {
			continue
		}
		usage := strings.ReplaceAll(strings.TrimSuffix(cmd.UseLine(), " [flags]"), "|", "\\|")
		if page := pageOf(cmd); page != "" && page != "commands.md" {
			usage = fmt.Sprintf("[`%s`](%s)", usage, page)
		} else {
			usage = "`" + usage + "`"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", usage, cmd.Short)
	}
	return b.String()
}

func TestTheTableOfCommandsIsCurrent(t *testing.T) {
	const path, begin, end = docsFolder + "commands.md", "<!-- commands -->\n", "<!-- end of commands -->"
	text := readPage(t, path)
	before, rest, ok := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for the table", path)
	}
	wanted := before + begin + commandTable() + end + after
	if wanted == text {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the commands say; write it anew: go test ./cmd/weir -run TestTheTable -update", path)
	}
	if err := os.WriteFile(path, []byte(wanted), 0o644); err != nil { //nolint:gosec // a page
		t.Fatal(err)
	}
}
