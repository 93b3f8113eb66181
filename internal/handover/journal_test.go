package handover

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// contents is what a journal holds.
func contents(t *testing.T, j *journal) map[uint64]string {
	t.Helper()
	got := map[uint64]string{}
	if err := j.each(func(id uint64, record []byte) bool {
		got[id] = string(record)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// inDir opens a journal in a directory; unlock lets another one open it.
func inDir(t *testing.T, dir string) (j *journal, lost damage, unlock func()) {
	t.Helper()
	state, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	j, lost, err = state.open()
	if err != nil {
		t.Fatal(err)
	}
	return j, lost, func() {
		j.file.Close()
		state.lock.Close()
	}
}

// Whatever is put, replaced and deleted, a journal opened again holds the same, also after many compactions, which keep
// the file small.
func TestJournalHoldsWhatWasPut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	random := rand.New(rand.NewPCG(1, 2))
	want := map[uint64]string{}
	compactions := uint64(0)
	for range 5 {
		j, lost, unlock := inDir(t, dir)
		if lost != (damage{}) {
			t.Fatalf("damage in a sound journal: %+v", lost)
		}
		if got := contents(t, j); !maps.Equal(got, want) {
			t.Fatalf("%d records after opening again, want %d, or others", len(got), len(want))
		}
		for range 5000 {
			id := random.Uint64N(500)
			if random.IntN(4) == 0 {
				delete(want, id)
				if err := j.delete(id); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want[id] = strings.Repeat("x", random.IntN(2000)) + fmt.Sprint(id)
			if err := j.put(id, []byte(want[id])); err != nil {
				t.Fatal(err)
			}
			if j.end > 2*j.liveBytes+slack+4096 {
				t.Fatalf("%d bytes for %d live ones", j.end, j.liveBytes)
			}
		}
		if got := contents(t, j); !maps.Equal(got, want) {
			t.Fatal("other records than were put")
		}
		compactions += j.stats.Compactions
		unlock()
	}
	if compactions == 0 {
		t.Error("no compaction in 25,000 changes")
	}
	if _, err := os.Stat(filepath.Join(dir, journalFile+".new")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a compaction left its file behind")
	}
}

// A journal cut off at any byte opens with all whole records before the cut, calls it torn, and goes on from there.
func TestJournalCutOff(t *testing.T) {
	dir := t.TempDir()
	j, _, unlock := inDir(t, dir)
	ends := []int64{j.end}
	for id := range uint64(4) {
		if err := j.put(id, fmt.Appendf(nil, "record %d", id)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, j.end)
	}
	unlock()
	path := filepath.Join(dir, journalFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := ends[0]; cut <= ends[4]; cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		records := 0
		for _, end := range ends[1:] {
			if end <= cut {
				records++
			}
		}
		j, lost, unlock := inDir(t, dir)
		if got := contents(t, j); len(got) != records || lost.Torn != (cut != ends[records]) || lost.Frames != 0 || lost.Bytes != cut-ends[records] {
			t.Fatalf("cut at %d: %d records, %+v; want %d records", cut, len(got), lost, records)
		}
		if err := j.put(9, []byte("later")); err != nil {
			t.Fatal(err)
		}
		unlock()
		j, lost, unlock = inDir(t, dir)
		if got := contents(t, j); len(got) != records+1 || got[9] != "later" || lost != (damage{}) {
			t.Fatalf("cut at %d, then put: %d records, %+v", cut, len(got), lost)
		}
		unlock()
	}
}

// A damaged frame costs itself; the count says exactly how many are lost, and what comes after is read.
func TestJournalDamagedInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	j, _, unlock := inDir(t, dir)
	for id := range uint64(10) {
		if err := j.put(id, bytes.Repeat([]byte{byte(id)}, 100)); err != nil {
			t.Fatal(err)
		}
	}
	unlock()
	path := filepath.Join(dir, journalFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const length = frameHeader + 100
	text[fileHeader+3*length+frameHeader+50] ^= 1 // body of record 3
	text[fileHeader+6*length+9] ^= 1              // head of record 6
	copy(text[fileHeader+7*length:], make([]byte, 40))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	j, lost, unlock := inDir(t, dir)
	defer unlock()
	got := contents(t, j)
	if len(got) != 7 || lost.Frames != 3 || lost.Bytes != 3*length || lost.Torn {
		t.Errorf("%d records, %+v; want 7, 3 frames of %d bytes lost", len(got), lost, length)
	}
	for _, id := range []uint64{3, 6, 7} {
		if _, ok := got[id]; ok {
			t.Errorf("record %d is damaged, and there", id)
		}
	}
	if s := j.snapshot(); s.LostFrames != 3 || s.Records != 6 {
		t.Errorf("stats %+v", s)
	}
}

// Bounds: the record beyond one is refused and counted, the earlier record of that id stays.
func TestJournalIsBounded(t *testing.T) {
	j, _, unlock := inDir(t, t.TempDir())
	defer unlock()
	j.maxRecords, j.maxBytes = 3, 1000
	for id := range uint64(5) {
		_ = j.put(id, []byte("small"))
	}
	if err := j.put(0, make([]byte, 2000)); !errors.Is(err, errBound) {
		t.Errorf("too many bytes: %v", err)
	}
	if err := j.put(1, make([]byte, MaxRecord+1)); !errors.Is(err, errBound) {
		t.Errorf("too long: %v", err)
	}
	if got := contents(t, j); len(got) != 3 || got[0] != "small" || j.stats.Refused != 4 {
		t.Errorf("%d records, %d refused; want 3 and 4", len(got), j.stats.Refused)
	}
}

// A file in the place of the journal that is none, or of another version, is set aside, never over an earlier one, and a new
// journal begins. Where too many were set aside, it stays, and nothing is kept.
func TestUnreadableJournalIsSetAside(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	texts := []string{"#!/bin/sh\necho this is a script\n", "weir", fileMagic + "\x07\x00\x00\x00\x00\x00\x00\x00"}
	for i := range maxAside + 1 {
		text := texts[i%len(texts)]
		path, aside := filepath.Join(dir, journalFile), filepath.Join(dir, journalFile+".bad")
		if i > 0 {
			aside += fmt.Sprint(".", i)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := Open(Options{State: dir})
		if err != nil {
			t.Fatal(err)
		}
		k.Put(1, []byte("record"))
		stats := k.Stats()
		k.Close()
		if i == maxAside {
			aside = path
		}
		if got, err := os.ReadFile(aside); err != nil || string(got) != text {
			t.Errorf("%d: %s holds %q, %v; want %q", i, aside, got, err, text)
		}
		if full := i == maxAside; (stats.Unusable != "") != full || (stats.Journal.Records == 1) == full {
			t.Errorf("%d: %+v", i, stats)
		}
	}
}

// A directory that cannot be written costs the journal, not the start; status says so.
func TestUnwritableState(t *testing.T) {
	k, err := Open(Options{State: "/sys/weir-test"}) // no one can make one there
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.Put(1, []byte("record"))
	k.Delete(1)
	if s := k.Stats(); !strings.Contains(s.Unusable, "/sys/weir-test") || s.State != "" {
		t.Errorf("%+v", s)
	}
}

// A gateway starts on a full disk, and its records survive its child's death all the same. When there is room again, the next
// child has the journal in the directory, with everything.
func TestRootFullDisk(t *testing.T) {
	netlabtest.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String(), stateEnv+"="+dir)
	s.output.has(t, "no journal")
	again := func(a answer) answer {
		t.Helper()
		kill(t, a.pid, unix.SIGKILL)
		b := s.request("after")
		for b.pid == a.pid {
			b = s.request("after")
		}
		if b.count <= a.count {
			t.Fatalf("after a kill %+v, before it %+v", b, a)
		}
		return b
	}
	a := again(s.request("first"))
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	a = again(a)
	if info, err := os.Stat(filepath.Join(dir, journalFile)); err != nil || info.Size() <= fileHeader {
		t.Errorf("the journal in the directory: %v, %v", info, err)
	}
	kill(t, s.cmd.Process.Pid, unix.SIGKILL)
	<-s.ended
	killAndWait(t, a.pid)
	if b := start(t, os.Args[0], netlabtest.UDPAddress(t).String(), stateEnv+"="+dir).request("new"); b.count <= a.count {
		t.Errorf("after the death of all processes %+v, before it %+v", b, a)
	}
}

// What cannot be a state directory is one clear error that names the remedy.
func TestStateRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		want string
	}{
		"link": {func(t *testing.T, dir string) {
			if err := os.Symlink("/etc/passwd", filepath.Join(dir, journalFile)); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		"directory": {func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, journalFile), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is a directory"},
		"others may write": {func(t *testing.T, dir string) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}, "chmod it to 0700"},
		"in use": {func(t *testing.T, dir string) {
			state, err := openState(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { state.lock.Close() })
		}, fmt.Sprintf("process %d uses it", os.Getpid())},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			c.make(t, dir)
			k, err := Open(Options{State: dir})
			if err == nil {
				k.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v\nwant %q and the directory", err, c.want)
			}
		})
	}
}

// A file made to be slow, of heads that promise bodies that do not fit, costs a bounded time and is counted as lost.
func TestScanIsBounded(t *testing.T) {
	text := appendFileHeader(nil)
	head := appendFrame(nil, frame{kind: kindPut, sequence: 1, body: make([]byte, MaxRecord)})[:frameHeader]
	for len(text) < 8<<20 {
		text = append(text, head...)
	}
	end, lost, err := scan(bytes.NewReader(text), int64(len(text)), func(frame, int64) { t.Error("a frame") })
	if err != nil || end != fileHeader || lost.Bytes != int64(len(text)-fileHeader) {
		t.Errorf("end %d, %+v, %v", end, lost, err)
	}
}

func FuzzScan(f *testing.F) {
	sound := appendFileHeader(nil)
	for i := range uint64(3) {
		sound = appendFrame(sound, frame{kind: kindPut, sequence: i + 1, id: i, body: []byte("record")})
	}
	sound = appendFrame(sound, frame{kind: kindDelete, sequence: 4, id: 1})
	f.Add(sound)
	f.Add(sound[:len(sound)-5])
	f.Add(append(bytes.Clone(sound), sound[fileHeader:]...))
	f.Add([]byte("weirkeep"))
	f.Fuzz(func(t *testing.T, text []byte) {
		frames, bytesRead, last := 0, int64(fileHeader), uint64(0)
		end, lost, err := scan(bytes.NewReader(text), int64(len(text)), func(f frame, offset int64) {
			frames++
			again := appendFrame(nil, f)
			if !bytes.Equal(again, text[offset:offset+int64(len(again))]) {
				t.Fatal("a frame that is not in the file")
			}
			if f.sequence <= last {
				t.Fatal("frames out of order")
			}
			last = f.sequence
			bytesRead += int64(len(again))
		})
		if err != nil {
			return
		}
		if end < fileHeader || end > int64(len(text)) || bytesRead+lost.Bytes != int64(len(text)) {
			t.Fatalf("%d frames, %d bytes read and %d lost of %d; end %d", frames, bytesRead, lost.Bytes, len(text), end)
		}
		if lost.Frames == 0 && lost.Bytes == 0 && uint64(frames) != last {
			t.Fatalf("%d frames of %d, and none lost", frames, last)
		}
	})
}

// A compaction that fails, as on a full disk, is tried again only after another mebibyte: each attempt copies all live
// records, which would stop the worker at every change. Nothing that was put is lost meanwhile.
func TestFailedCompactionIsNotRetriedAtOnce(t *testing.T) {
	j, _, unlock := inDir(t, t.TempDir())
	defer unlock()
	full, attempts := true, 0
	fresh := j.fresh
	j.fresh = func() (*os.File, error) {
		attempts++
		if full {
			return nil, unix.ENOSPC
		}
		return fresh()
	}
	record := make([]byte, 1000)
	failed := 0
	const changes = 4 * slack / 1000
	for i := range changes {
		record[0] = byte(i)
		if err := j.put(1, record); err != nil {
			failed++
		}
	}
	if attempts < 2 || attempts > 4 || failed != attempts {
		t.Errorf("%d attempts and %d errors in %d changes of 1 kB, want one per mebibyte", attempts, failed, changes)
	}
	full = false
	for range slack/1000 + 100 {
		if err := j.put(1, record); err != nil {
			t.Fatal(err)
		}
	}
	if got := contents(t, j); j.stats.Compactions == 0 || j.end > 3*slack || got[1] != string(record) {
		t.Errorf("with room again: %d compactions, %d bytes, %d records", j.stats.Compactions, j.end, len(got))
	}
}
