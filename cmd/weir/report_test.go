package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
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
		if _, ok := flag.Value.(reportFile); !ok {
			t.Errorf("%s: make its --report by addReportFlag", cmd.CommandPath())
			return // it might run
		}
		for name, want := range bad {
			_, err := execute(t, append(strings.Fields(cmd.CommandPath())[1:], "--report", name)...)
			var exit *exitError
			if !errors.As(err, &exit) || exit.code != exitUsage || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"--report"`) {
				t.Errorf("%s --report %s: %v; want a usage error with %q", cmd.CommandPath(), name, err, want)
			}
		}
	}
	walk(newRootCommand())
	if found < 8 {
		t.Errorf("%d commands have --report; there were 8", found)
	}
	_, err := execute(t, "bench", "report", file, "-o", filepath.Join(directory, "missing", "report.html"))
	if err == nil || !strings.Contains(err.Error(), "-o "+directory) || !strings.Contains(err.Error(), "there is no directory") {
		t.Errorf("bench report: %v", err)
	}
	left, err := os.ReadDir(directory)
	if text, _ := os.ReadFile(file); err != nil || len(left) != 1 || string(text) != "kept" {
		t.Errorf("after the refusals there are %v and %q", left, text)
	}
}

func TestReplaceFileIsWholeOrNotAtAll(t *testing.T) {
	directory := t.TempDir()
	name, link := filepath.Join(directory, "report.html"), filepath.Join(directory, "latest.html")
	if err := os.Symlink("report.html", link); err != nil {
		t.Fatal(err)
	}
	write := func(text string, err error) func(io.Writer) error {
		return func(w io.Writer) error {
			return errors.Join(err, func() error { _, err := io.WriteString(w, text); return err }())
		}
	}
	if err := replaceFile(name, write("first", nil)); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(link, write("second", nil)); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(link, write("half", errors.New("broke"))); err == nil {
		t.Error("the writer's error is lost")
	}
	if at, err := os.Readlink(link); err != nil || at != "report.html" {
		t.Errorf("the link points to %q, %v", at, err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "second" {
		t.Errorf("%q, %v; want what the last whole write left", text, err)
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) != 2 {
		t.Errorf("%v, %v; want the file and its link alone", left, err)
	}
}

// As root, a rename over /dev/null would take the device from everybody.
func TestReportToADeviceIsWrittenToIt(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0) // read and write: neither side waits for the other
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := replaceable(fifo); err != nil {
		t.Fatal(err)
	}
	if err := writeReport(fifo, func(w io.Writer) error { _, err := io.WriteString(w, "page"); return err }); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 4)
	if _, err := io.ReadFull(reader, text); err != nil || string(text) != "page" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Stat(fifo); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe became %v, %v", info, err)
	}
}
