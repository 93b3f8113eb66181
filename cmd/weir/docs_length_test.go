package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// longPages may have more than maxPageWords words: tables to look something up in, which no program reads from top to bottom.
var longPages = map[string]string{
	"ARCHITECTURE.md": "the map of all packages",
	"commands.md":     "the generated table of all commands",
	"events.md":       "the generated table of all log records",
	"figures.md":      "all figures",
	"metrics.md":      "the generated tables of all metrics",
	"options.md":      "the generated tables of all keys",
	"reasons.md":      "the generated tables of all reasons",
	"tables.md":       "all bounded tables and their tests",
}

const maxPageWords = 1500

// A page of documentation is one task or one part of the reference. A longer one is split.
func TestPagesAreShort(t *testing.T) {
	for _, path := range pages(t) {
		page := filepath.Base(path)
		words := len(strings.Fields(clitest.ReadPage(t, path)))
		_, long := longPages[page]
		switch {
		case words > maxPageWords && !long:
			t.Errorf("%s has %d words, the limit is %d: split it", page, words, maxPageWords)
		case words <= maxPageWords && long:
			t.Errorf("%s has only %d words: remove it from longPages", page, words)
		}
	}
}

// The index of the documentation leads to every page.
func TestEveryPageIsInTheIndex(t *testing.T) {
	index := clitest.ReadPage(t, docsFolder+"README.md")
	for _, path := range pages(t) {
		page := filepath.Base(path)
		if filepath.Dir(path)+"/" == docsFolder && page != "README.md" && !strings.Contains(index, "]("+page) {
			t.Errorf("docs/README.md has no link to %s", page)
		}
	}
}
