package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// Every test that docs/tables.md names is in the package that it names.
func TestTablesNameTheirTests(t *testing.T) {
	rows := 0
	for line := range strings.Lines(clitest.ReadPage(t, docsFolder+"tables.md")) {
		cell := line[strings.LastIndex(strings.TrimRight(line, " |\n"), "|")+1:]
		folder := regexp.MustCompile(`\(([a-z/]+)\)`).FindStringSubmatch(cell)
		names := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(cell, -1)
		if !strings.HasPrefix(line, "| ") || len(names) == 0 {
			continue
		}
		rows++
		if folder == nil {
			t.Errorf("no package for the test in %s", line)
			continue
		}
		files, err := filepath.Glob("../../internal/" + folder[1] + "/*_test.go")
		if err != nil || len(files) == 0 {
			t.Errorf("no tests in internal/%s: %v", folder[1], err)
		}
		var all strings.Builder
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		for _, name := range names {
			if !strings.Contains(all.String(), "func "+name[1]+"(") {
				t.Errorf("internal/%s has no %s", folder[1], name[1])
			}
		}
	}
	if rows < 15 {
		t.Errorf("%d rows with tests: the page is read wrongly", rows)
	}
}
