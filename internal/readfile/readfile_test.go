package readfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// Whatever is under the name: an answer at once, which names the file and the remedy.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(unix.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("directory"), 0o700),
		os.WriteFile(at("file"), []byte("12345678"), 0o600), os.Symlink("file", at("link")), os.Symlink("loop", at("loop"))); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, name := range []string{"file", "link"} {
		if text, err := Read(at(name), 8); err != nil || string(text) != "12345678" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for path, want := range map[string]string{
		at("fifo"):          "is a pipe; name a regular file",
		at("directory"):     "is a directory; name a regular file",
		at("socket"):        "is a socket; name a regular file",
		at("loop"):          "too many levels of symbolic links; name a regular file",
		at("file/below"):    "not a directory; name a regular file",
		at("missing"):       "no such file or directory; create it, or name another file",
		"/dev/zero":         "is a device; name a regular file",
		"/dev/null":         "is a device; name a regular file",
		"":                  "no such file or directory",
		at("file") + "\x00": "invalid argument",
	} {
		if text, err := Read(path, 8); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %q, %v; want %s", path, text, err, want)
		}
	}
	if _, err := Read(at("file"), 7); err == nil || !strings.Contains(err.Error(), "file is larger than 7 bytes") {
		t.Errorf("too large: %v", err)
	}
	if text, err := New(at("file"), 3).Read(); err != nil || string(text) != "123" {
		t.Errorf("the head: %q, %v", text, err)
	}
}

// A command that reads one time takes a pipe, and one that no program writes to does not hold it up.
func TestOnceReadsAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		io.WriteString(w, "generated")
		w.Close()
	}()
	path := fmt.Sprintf("/proc/self/fd/%d", r.Fd())
	if text, err := Once(path, 100); err != nil || string(text) != "generated" {
		t.Errorf("%q, %v", text, err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Once(fifo, 100); err != nil || len(text) != 0 {
		t.Errorf("a pipe without a writer: %q, %v", text, err)
	}
}

// hanging is a file system that does not answer until the test lets it.
type hanging struct {
	answer chan string
	opened atomic.Int32
}

func (h *hanging) open(string, bool) (io.ReadCloser, error) {
	h.opened.Add(1)
	return io.NopCloser(strings.NewReader(<-h.answer)), nil
}

// A file system that hangs costs the time-out, and a bounded number of goroutines; when it answers again, so does the file.
func TestAHangingFileSystemHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nfs := &hanging{answer: make(chan string)}
		file := New("/nfs/weir.yaml", 100)
		file.open = nfs.open
		for range MaxHanging {
			started := time.Now()
			if _, err := file.Read(); err == nil || !strings.Contains(err.Error(), "/nfs/weir.yaml does not answer for 5s; look at its file system") {
				t.Errorf("read: %v", err)
			}
			if took := time.Since(started); took != Timeout {
				t.Errorf("it took %v", took)
			}
		}
		started := time.Now()
		for range 100 {
			if _, err := file.Read(); err == nil || !strings.Contains(err.Error(), "still does not answer") {
				t.Errorf("next read: %v", err)
			}
		}
		if took := time.Since(started); took != 0 || nfs.opened.Load() != MaxHanging || !file.Hangs() {
			t.Errorf("%v later %d goroutines hang", took, nfs.opened.Load())
		}
		for range MaxHanging {
			nfs.answer <- "old" // to the reads that were given up
		}
		synctest.Wait()
		if file.Hangs() {
			t.Error("it hangs when all came back")
		}
		go func() { nfs.answer <- "new" }()
		if text, err := file.Read(); err != nil || string(text) != "new" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func TestErrorsAreThoseOfTheSystem(t *testing.T) {
	if _, err := Read("/does/not/exist", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
