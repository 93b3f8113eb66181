package flowfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/steer"
)

func flowOf(i int) steer.KeptFlow {
	f := steer.KeptFlow{Backend: uint64(i) + 7, State: 2, Proven: i%3 == 0, Until: time.Duration(i+1) * time.Minute}
	f.Key = flow.Key{SrcPort: uint16(i), DstPort: 80, Proto: flow.ProtoTCP}
	binary.BigEndian.PutUint64(f.Key.Src[8:], uint64(i))
	return f
}

func open(t *testing.T, path string, workers, perWorker int, now time.Duration) (*File, string) {
	t.Helper()
	f, why, err := Open(path, workers, perWorker, now)
	if err != nil {
		t.Fatal(err)
	}
	return f, why
}

// all are the entries that worker i finds.
func all(f *File, i int) (list []steer.KeptFlow, damaged int) {
	damaged = f.Read(i, func(k steer.KeptFlow) { list = append(list, k) })
	return list, damaged
}

// What a process has written is there for the next one without an end of the first: entries that changed as they are, those that went not
// at all, proven ones first, with times by the next one's clock.
func TestFlowsOutliveTheirProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.flows")
	const workers, each = 2, 3000
	first, why := open(t, path, workers, each, time.Hour)
	if why != "" {
		t.Fatal(why)
	}
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	for w := range workers {
		for i := range each {
			f := flowOf(i)
			f.Until += time.Hour
			first.Worker(w).Keep(i, f)
		}
		for i := 1; i < each; i += 2 {
			first.Worker(w).Forget(i)
		}
	}
	changed := flowOf(4)
	changed.Proven, changed.State, changed.Until = true, 3, never
	first.Worker(1).Keep(4, changed)
	if first.Unkept() != 0 {
		t.Error(first.Unkept(), "entries were not kept")
	}
	if _, _, err := Open(path, workers, each, 0); !errors.Is(err, ErrInUse) {
		t.Errorf("the file of a process that is there: %v", err)
	}
	kill(first)

	second, why := open(t, path, workers, each, 0)
	if why != "" {
		t.Fatal(why)
	}
	for w := range workers {
		list, damaged := all(second, w)
		if len(list) != each/2 || damaged != 0 {
			t.Fatalf("worker %d: %d flows, %d damaged", w, len(list), damaged)
		}
		proven := true
		for _, got := range list {
			i := int(got.Key.SrcPort)
			want := flowOf(i)
			if w == 1 && i == 4 {
				want = changed
			}
			if late := want.Until - got.Until; want.Until != never && (late < 0 || late > time.Minute) {
				t.Errorf("flow %d ends %s too early", i, late)
			}
			want.Until = got.Until
			if got != want || got.Proven && !proven || w == 1 && i == 4 && got.Until != never {
				t.Fatalf("worker %d: %+v, want %+v", w, got, want)
			}
			proven = got.Proven
		}
	}
	// Killed before Commit, the second has changed nothing.
	second.Worker(0).Keep(0, flowOf(9))
	kill(second)
	third, _ := open(t, path, 3, each, 0)
	for w := range 3 {
		if list, _ := all(third, w); len(list) != each {
			t.Errorf("with other workers: %d flows for worker %d", len(list), w)
		}
	}
	if err := third.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := third.Close(true); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", err, left)
	}
}

// kill is the end of a process without Close.
func kill(f *File) {
	f.closeOld()
	_ = unix.Munmap(f.bytes) // a mapping keeps the lock
	f.file.Close()
}

// A file of another boot, namespace or format, and what is no file of flows, is not used and is replaced; a file of another kind or in a
// directory that is not there is an error.
func TestFilesThatAreNotUsed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lb.flows")
	change := func(f func(l *layout)) []byte {
		l := layout{workers: 1, perWorker: 4}
		if err := l.here(); err != nil {
			t.Fatal(err)
		}
		f(&l)
		b := make([]byte, l.size())
		copy(b, l.marshal())
		return b
	}
	good := change(func(*layout) {})
	otherVersion := change(func(*layout) {})
	otherVersion[16] = 9
	for what, content := range map[string][]byte{
		"it is of an earlier boot of this machine":               change(func(l *layout) { l.boot[3]++ }),
		"it belongs to another network namespace":                change(func(l *layout) { l.namespace++ }),
		"it is no file of flows":                                 []byte("hello"),
		"its header is damaged":                                  otherVersion,
		fmt.Sprintf("it has %d bytes instead of %d", 4097, 4352): good[:4097],
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		f, why := open(t, path, 1, 8, 0)
		if why != what {
			t.Errorf("%q, want %q", why, what)
		}
		if err := errors.Join(f.Commit(), f.Close(false)); err != nil {
			t.Error(err)
		}
		if f, why = open(t, path, 1, 8, 0); why != "" {
			t.Errorf("after %q: %q", what, why)
		}
		_ = f.Close(false)
	}
	if _, _, err := Open(dir, 1, 8, 0); err == nil {
		t.Error("a directory was opened")
	}
	if _, _, err := Open(filepath.Join(dir, "none", "x"), 1, 8, 0); err == nil {
		t.Error("a file in no directory was opened")
	}
	if _, _, err := Open(path, 2, MaxRecords, 0); err == nil {
		t.Error("more records than allowed")
	}
}

// Whatever is in a file, reading it neither fails nor yields more than there is.
func FuzzFile(f *testing.F) {
	l := layout{workers: 1, perWorker: 3}
	if err := l.here(); err != nil {
		f.Fatal(err)
	}
	content := make([]byte, l.size())
	copy(content, l.marshal())
	one := flowOf(1)
	write(content[headerSize:headerSize+recordSize], &one, one.Until)
	f.Add(content)
	f.Add(content[:100])
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := unmarshal(content[:min(len(content), headerUsed+4)], int64(len(content)))
		if err != nil {
			return
		}
		if got.size() != int64(len(content)) {
			t.Fatal("the size is not checked")
		}
		for at := headerSize; at < len(content); at += recordSize {
			flow, used, ok := read(content[at : at+recordSize])
			if !used || !ok {
				continue
			}
			again := make([]byte, recordSize)
			if write(again, &flow, flow.Until); string(again) != string(content[at:at+recordSize]) {
				t.Fatalf("%x is read as %+v", content[at:at+recordSize], flow)
			}
		}
	})
}

// Keeping a flow costs a few stores and no memory.
func TestKeepAllocatesNothing(t *testing.T) {
	f, _ := open(t, filepath.Join(t.TempDir(), "x"), 1, 4096, 0)
	defer f.Close(false)
	w, k, i := f.Worker(0), flowOf(3), 0
	var journal steer.Journal = w
	if n := testing.AllocsPerRun(3000, func() { journal.Keep(i, k); journal.Forget(i); i++ }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkKeep(b *testing.B) {
	f, _, err := Open(filepath.Join(b.TempDir(), "x"), 1, 1<<16, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close(false)
	k := flowOf(3)
	for i := range b.N {
		f.Worker(0).Keep(i&(1<<16-1), k)
	}
}
