package measuring

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

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
	if err := Replaceable(fifo); err != nil {
		t.Fatal(err)
	}
	if err := WriteReport(fifo, func(w io.Writer) error { _, err := io.WriteString(w, "page"); return err }); err != nil {
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
