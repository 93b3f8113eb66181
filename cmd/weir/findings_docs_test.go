package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// everyTest are the names of all tests and fuzz targets, and of the files of the corpora.
func everyTest(t *testing.T) (known map[string]bool) {
	t.Helper()
	known = map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasSuffix(path, ".txtar"):
			known[filepath.Base(path)] = true
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			for _, found := range declared.FindAllSubmatch(text, -1) {
				known[string(found[1])] = true
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// Every test that the threat model and the check list of a release name exists, and every asset of the threat model has one.
func TestThreatModelNamesItsTests(t *testing.T) {
	known := everyTest(t)
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	rows := 0
	for _, path := range []string{docsFolder + "security.md", docsFolder + "release.md"} {
		for i, line := range strings.Split(clitest.ReadPage(t, path), "\n") {
			names := named.FindAllStringSubmatch(line, -1)
			for _, name := range names {
				if !known[name[1]] {
					t.Errorf("%s:%d: there is no %s", path, i+1, name[1])
				}
			}
			if cells := strings.Split(line, " | "); len(cells) == 4 && !strings.HasPrefix(line, "| asset ") {
				rows++
				if test := cells[3]; len(names) == 0 && !strings.Contains(test, "](") && !strings.Contains(test, "corpus") {
					t.Errorf("%s:%d: no test in %s", path, i+1, line)
				}
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d rows: the page is read wrongly", rows)
	}
}

// Each finding of docs/findings*.md names a test, is open or says that there is none, and what it names exists.
func TestFindingsNameTheirTests(t *testing.T) {
	known := everyTest(t)
	named := regexp.MustCompile("`(Test\\w+|[\\w-]+\\.txtar)`")
	rows, open := 0, 0
	paths, err := filepath.Glob("../../docs/findings*.md")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, path := range paths {
		for i, line := range strings.Split(clitest.ReadPage(t, path), "\n") {
			lines = append(lines, fmt.Sprintf("%s:%d: %s", filepath.Base(path), i+1, line))
		}
	}
	for _, line := range lines {
		at, line, _ := strings.Cut(line, ": ")
		names := named.FindAllStringSubmatch(line, -1)
		for _, name := range names {
			if !known[name[1]] {
				t.Errorf("docs/%s: there is no %s", at, name[1])
			}
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| finding |") {
			continue
		}
		rows++
		isOpen := strings.Contains(strings.ToLower(line), "**open**")
		if isOpen {
			open++
		}
		if len(names) == 0 && !isOpen && !strings.Contains(line, "no test") {
			t.Errorf("docs/%s: neither a test nor open: %s", at, line)
		}
	}
	t.Logf("%d findings, %d of them open", rows, open)
	if rows < 180 {
		t.Errorf("only %d findings", rows)
	}
}
