package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/measuring"
)

// A report that could not be written is refused before the run, by every command that writes one. Were it not, this
// test would run benchmarks for minutes.
func TestReportIsRefusedBeforeTheRun(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		filepath.Join(directory, "missing", "report.html"): "there is no directory " + filepath.Join(directory, "missing"),
		filepath.Join(file, "report.html"):                 "not a directory",
		directory:                                          "is a directory",
		"/proc/report.html":                                "/proc",
		"-":                                                "name a file",
	}
	found := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		flag := cmd.Flags().Lookup("report")
		if flag == nil {
			return
		}
		found++
		if _, ok := flag.Value.(measuring.ReportFile); !ok {
			t.Errorf("%s: make its --report by measuring.Output", cmd.CommandPath())
			return // it might run
		}
		for name, want := range bad {
			_, err := clitest.Execute(t, append(strings.Fields(cmd.CommandPath())[1:], "--report", name)...)
			var exit *cli.ExitError
			if !errors.As(err, &exit) || exit.Code != cli.ExitUsage || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"--report"`) {
				t.Errorf("%s --report %s: %v; want a usage error with %q", cmd.CommandPath(), name, err, want)
			}
		}
	}
	walk(clitest.Root())
	if found < 8 {
		t.Errorf("%d commands have --report; there were 8", found)
	}
	_, err := clitest.Execute(t, "bench", "report", file, "-o", filepath.Join(directory, "missing", "report.html"))
	if err == nil || !strings.Contains(err.Error(), "-o "+directory) || !strings.Contains(err.Error(), "there is no directory") {
		t.Errorf("bench report: %v", err)
	}
	left, err := os.ReadDir(directory)
	if text, _ := os.ReadFile(file); err != nil || len(left) != 1 || string(text) != "kept" {
		t.Errorf("after the refusals there are %v and %q", left, text)
	}
}
