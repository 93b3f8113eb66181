package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// Each finding of docs/findings.md names a test or is open, and what it names exists.
func TestFindingsNameTheirTests(t *testing.T) {
	known := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
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
	named := regexp.MustCompile("`(Test\\w+|[\\w-]+\\.txtar)`")
	rows, open := 0, 0
	for i, line := range strings.Split(clitest.ReadPage(t, "../../docs/findings.md"), "\n") {
		names := named.FindAllStringSubmatch(line, -1)
		for _, name := range names {
			if !known[name[1]] {
				t.Errorf("docs/findings.md:%d: there is no %s", i+1, name[1])
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
		if len(names) == 0 && !isOpen && !strings.Contains(line, "measured, no test") {
			t.Errorf("docs/findings.md:%d: neither a test nor open: %s", i+1, line)
		}
	}
	t.Logf("%d findings, %d of them open", rows, open)
	if rows < 50 {
		t.Errorf("only %d findings", rows)
	}
}
