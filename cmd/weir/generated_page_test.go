package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

var update = flag.Bool("update", false, "write the generated parts of docs/ again")

// checkGenerated compares the part of a page between <!-- NAME --> and <!-- end of NAME --> with what the code says. -update
// writes it.
func checkGenerated(t *testing.T, page, name, content string) {
	t.Helper()
	path, begin, end := docsFolder+page, "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	text := clitest.ReadPage(t, path)
	before, rest, ok := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no place for %s: write %s%s", path, name, begin, end)
	}
	wanted := before + begin + content + end + after
	if wanted == text {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says; write it again: go test ./cmd/weir -run '^%s$' -update", path, t.Name())
	}
	if err := os.WriteFile(path, []byte(wanted), 0o644); err != nil { //nolint:gosec // a page
		t.Fatal(err)
	}
}

// cell is a text as the cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
