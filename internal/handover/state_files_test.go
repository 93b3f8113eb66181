package handover

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// Files of the state directory are the owner's alone, outlive the process, are replaced as a whole, and are emptied where processes ended
// of what is kept.
func TestFilesOfTheState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	open := func(clean bool) string {
		k, err := Open(Options{State: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		k.hello.Clean = clean
		file, err := k.OpenState("coaps/127.0.0.1:5684/1")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if info, err := file.Stat(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		before, _ := io.ReadAll(file)
		next, install, err := k.ReplaceState("coaps/127.0.0.1:5684/1")
		if err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		if _, err := next.WriteString(string(before) + "x"); err != nil {
			t.Fatal(err)
		}
		if err := install(); err != nil {
			t.Fatal(err)
		}
		return string(before)
	}
	for i, want := range []string{"", "x", "xx"} {
		if got := open(false); got != want {
			t.Errorf("start %d finds %q, want %q", i, got, want)
		}
	}
	if got := open(true); got != "" {
		t.Errorf("a clean start finds %q", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 { // with journal and lock
		t.Errorf("%v, %v", left, err)
	}
	k, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if file, err := k.OpenState("x"); file != nil || err != nil {
		t.Errorf("without a directory: %v, %v", file, err)
	}
}
