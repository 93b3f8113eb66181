// Package configtest tests readers of configuration files with files: bad ones, whose first line is a comment with the wanted error,
// and seeds for fuzzing.
package configtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Bad has decode refuse every file of testdata/bad, of which there are at least so many: the error begins with the file's name and
// place, such as ":2:", and has what the file's first line says.
func Bad(t *testing.T, atLeast int, place string, decode func(file string, text []byte) error) {
	t.Helper()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < atLeast {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		want, ok := strings.CutPrefix(first, "# ")
		if err := decode(file, text); !ok || err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), file+place) {
			t.Errorf("%s: error %v\nwant %s", file, err, want)
		}
	}
}

// Seeds adds files that match the patterns.
func Seeds(f *testing.F, patterns ...string) {
	f.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
}
