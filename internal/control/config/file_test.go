package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// change is what Watch reported.
type change struct {
	text string
	err  error
}

// watchFile follows a file until the test ends.
func watchFile(t *testing.T, file *File, seen string) <-chan change {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, done := make(chan change, 16), make(chan error, 1)
	go func() {
		done <- file.Watch(ctx, []byte(seen), func(text []byte, err error) { changes <- change{string(text), err} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	return changes
}

func next(t *testing.T, changes <-chan change) change {
	t.Helper()
	select {
	case c := <-changes:
		return c
	case <-time.After(60 * time.Second):
		t.Fatal("no change reported")
		return change{}
	}
}

// A ConfigMap volume: the file is a symlink into ..data, and ..data is swapped as a whole.
func TestWatchSeesASwappedConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "weir.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, filepath.Join(dir, "..next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "one")
	if err := os.Symlink("..data/weir.yaml", filepath.Join(dir, "weir.yaml")); err != nil {
		t.Fatal(err)
	}
	file := NewFile(filepath.Join(dir, "weir.yaml"))
	text, err := file.Read()
	if err != nil || string(text) != "one" {
		t.Fatalf("%q, %v", text, err)
	}
	changes := watchFile(t, file, "one")
	version("..2", "two")
	if c := next(t, changes); c.text != "two" || c.err != nil {
		t.Errorf("%+v", c)
	}
	version("..3", "three")
	if c := next(t, changes); c.text != "three" || c.err != nil {
		t.Errorf("%+v", c)
	}
}

// A change that came between reading and watching is seen without an event.
func TestWatchLooksOnceAtTheStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := next(t, watchFile(t, NewFile(path), "old")); c.text != "new" {
		t.Errorf("%+v", c)
	}
}

// Reload reports an unchanged file too.
func TestReloadReportsAnUnchangedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("same"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := NewFile(path)
	changes := watchFile(t, file, "same")
	file.Reload()
	if c := next(t, changes); c.text != "same" {
		t.Errorf("%+v", c)
	}
	if err := os.WriteFile(path, []byte("other"), 0o600); err != nil { // in place
		t.Fatal(err)
	}
	if c := next(t, changes); c.text != "other" {
		t.Errorf("%+v", c)
	}
}

// A directory that was replaced is watched again, not only polled.
func TestWatchFollowsAReplacedDirectory(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "etc")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	file := NewFile(filepath.Join(dir, "weir.yaml"))
	watched := make(chan string, 16)
	file.watching = func(directory string) { watched <- directory }
	file.poll = 20 * time.Millisecond
	changes := watchFile(t, file, "one")
	<-watched
	if err := os.Rename(dir, filepath.Join(base, "old")); err != nil {
		t.Fatal(err)
	}
	write("two")
	for c := next(t, changes); c.text != "two"; c = next(t, changes) { // it may be seen missing meanwhile
	}
	select {
	case <-watched:
	case <-time.After(15 * time.Second):
		t.Fatal("the new directory is not watched")
	}
}

func TestWatchNeedsADirectory(t *testing.T) {
	err := NewFile("/does/not/exist/weir.yaml").Watch(t.Context(), nil, func([]byte, error) {})
	if err == nil {
		t.Error("a missing directory is watched")
	}
}

// A file that is not regular is reported once, and changes nothing else: the next good file is read.
func TestWatchIsNotHeldUpByAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	replace := func(make func(path string) error) {
		t.Helper()
		if err := errors.Join(make(path+".next"), os.Rename(path+".next", path)); err != nil {
			t.Fatal(err)
		}
	}
	file := NewFile(path)
	replace(func(path string) error { return os.WriteFile(path, []byte("one"), 0o600) })
	changes := watchFile(t, file, "one")
	replace(func(path string) error { return unix.Mkfifo(path, 0o600) })
	if c := next(t, changes); c.err == nil || !strings.Contains(c.err.Error(), path+" is a pipe; name a regular file") {
		t.Errorf("a FIFO: %+v", c)
	}
	file.Reload()
	if c := next(t, changes); c.err == nil {
		t.Errorf("SIGHUP: %+v", c)
	}
	replace(func(path string) error { return os.WriteFile(path, []byte("two"), 0o600) })
	if c := next(t, changes); c.text != "two" || c.err != nil {
		t.Errorf("the next good file: %+v", c)
	}
}

// A file that a program replaces all the time is read nevertheless.
func TestWatchReadsAFileThatIsNeverQuiet(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Error(err)
		}
	}
	write("old")
	changes := watchFile(t, NewFile(path), "old")
	ticker := time.NewTicker(quietTime / 5)
	defer ticker.Stop()
	limit := time.After(8 * time.Second) // before it is polled
	for i := 0; ; i++ {
		select {
		case c := <-changes:
			if c.err != nil || c.text == "old" {
				t.Errorf("%+v", c)
			}
			return
		case <-limit:
			t.Fatal("not read while it is written all the time")
		case <-ticker.C:
			write(fmt.Sprint("new ", i))
		}
	}
}
