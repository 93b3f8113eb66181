// Package testbedtest compares what a program writes with golden files.
package testbedtest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files again")

// Golden compares a text with a file of testdata, line by line. With -update it writes the file.
func Golden(t testing.TB, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // as any file of the repository
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, wanted := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(lines), len(wanted)) {
		if lines[i] != wanted[i] {
			t.Fatalf("%s:%d is not what was written (-update writes it again):\ngot  %s\nwant %s", file, i+1, lines[i], wanted[i])
		}
	}
	if len(lines) != len(wanted) {
		t.Fatalf("%s has %d lines, %d were written (-update writes it again)", file, len(wanted), len(lines))
	}
}
