package steertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archive is one case: a comment and named files, in the text archive format
// ("-- name --" lines).
type archive struct {
	comment string
	files   map[string]string
}

func parseArchive(text string) archive {
	a := archive{files: map[string]string{}}
	name := ""
	for _, line := range strings.SplitAfter(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "-- ") && strings.HasSuffix(trimmed, " --") {
			name = strings.TrimSpace(trimmed[3 : len(trimmed)-3])
			a.files[name] = ""
			continue
		}
		if name == "" {
			a.comment += line
		} else {
			a.files[name] += line
		}
	}
	return a
}

// corpus returns the case files, found from the module's root so that tests of
// any package can run them.
func corpus(t testing.TB) []string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's directory")
		}
		dir = parent
	}
	names, err := filepath.Glob(filepath.Join(dir, "internal/steering/steer/testdata/*.txtar"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no corpus: %v", fmt.Sprint(err))
	}
	return names
}
