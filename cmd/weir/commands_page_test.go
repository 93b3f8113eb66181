package main

import (
	"fmt"
	"strings"
	"testing"
)

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
	checkGenerated(t, "commands.md", "commands", commandTable())
}
