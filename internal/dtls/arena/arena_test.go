package arena

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/dtls/record"
)

func small() Config {
	return Config{Slots: 4, Application: 40, Blocks: 2, BlockSize: 100, Version: 7}
}

func stateOf(i byte) State {
	s := State{
		Suite: record.PSKWithAES128CCM8, ReadCID: []byte{1, i, 3}, WriteCID: []byte{9, i}, Limit: 1 << 14, Auth: 2, Identity: "device-" + string('a'+rune(i)),
		Flags: HasCID | Routability, Established: time.Duration(i) * time.Second, Worker: int(i) % 3, Active: time.Duration(i) * time.Minute,
		Sent: uint64(i) + 1<<40, Forged: uint64(i), Window: record.NewWindow(100+uint64(i), 0xff0f),
		Path: Path{Addr: netip.MustParseAddrPort("192.0.2.1:5684"), Local: netip.MustParseAddr("2001:db8::1"), Proven: i%2 == 0},
	}
	for j := range s.Keys.ClientKey {
		s.Keys.ClientKey[j], s.Keys.ServerKey[j] = i+byte(j), i^byte(j)
	}
	return s
}

// newArena returns an arena and a second descriptor of its memory, as a supervisor has one.
func newArena(t *testing.T, cfg Config) (*Arena, *os.File) {
	t.Helper()
	a, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a, held(t, a.File())
}

func held(t *testing.T, file *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "held")
}

func reopen(t *testing.T, cfg Config, file *os.File) (*Arena, map[string]Restored, Loss) {
	t.Helper()
	a, loss, err := Open(cfg, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	found := map[string]Restored{}
	for _, r := range a.Restored() {
		found[r.State.Identity] = r
	}
	return a, found, loss
}

func TestSessionsAreRestoredAsTheyWereLeft(t *testing.T) {
	a, file := newArena(t, small())
	start := a.Start()
	want := map[string]State{}
	var sessions []*Session
	for i := range byte(4) {
		state := stateOf(i)
		s := a.Put(&state)
		copy(s.Application(), bytes.Repeat([]byte{i}, 40))
		sessions, want[state.Identity] = append(sessions, s), state
	}
	if a.Put(new(stateOf(9))) != nil {
		t.Error("a fifth session found a slot of four")
	}
	copy(a.Block(1), "worker 1")
	changed := want["device-b"]
	changed.Sent, changed.Forged, changed.Worker, changed.Active = 77, 5, 2, time.Hour+time.Millisecond
	changed.Window = record.NewWindow(4711, 1)
	changed.Path = Path{Addr: netip.MustParseAddrPort("[::ffff:192.0.2.9]:1")}
	s := sessions[1]
	s.Advance(77)
	s.Forged(5)
	s.Assign(2)
	s.Active(changed.Active)
	s.Received(record.NewWindow(1, 1))
	s.Received(changed.Window)
	s.Move(changed.Path)
	want["device-b"] = changed
	a.Remove(sessions[2])
	delete(want, "device-c")
	a.Close()

	b, found, loss := reopen(t, small(), file)
	if loss != (Loss{}) || len(found) != 3 || b.Used() != 3 {
		t.Fatalf("found %d, lost %+v", len(found), loss)
	}
	for name, state := range want {
		if got := found[name].State; !reflect.DeepEqual(got, state) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, state)
		}
	}
	if got := found["device-d"].Session.Application(); !bytes.Equal(got, bytes.Repeat([]byte{3}, 40)) {
		t.Errorf("the application's bytes are %v", got)
	}
	if string(b.Block(1)[:8]) != "worker 1" {
		t.Error("the block is lost")
	}
	if off := b.Start().Sub(start); off < -time.Millisecond || off > time.Millisecond {
		t.Errorf("the clock has moved by %v", off)
	}
	if b.Put(new(stateOf(8))) == nil || b.Put(new(stateOf(9))) != nil {
		t.Error("the free slot was not found again, or there is one too many")
	}
	if !b.Sealed() {
		t.Error("the memory can shrink")
	}
}

// A slot whose contents are not what was stored is dropped, whichever byte it is; the others stay.
func TestDamagedSlotsAreDropped(t *testing.T) {
	for at := range aligned(fixedSize + 40) {
		a, file := newArena(t, small())
		var second *Session
		for i := range byte(3) {
			s := a.Put(new(stateOf(i)))
			if i == 1 {
				second = s
			}
		}
		start := int(a.number(second))*a.cfg.slotSize() + headerSize + 2*a.cfg.blockSize()
		a.memory[start+at] ^= 0x40
		a.Close()
		_, found, loss := reopen(t, small(), file)
		if _, there := found["device-b"]; there && !reflect.DeepEqual(found["device-b"].State, stateOf(1)) {
			t.Fatalf("byte %d: restored as %+v", at, found["device-b"].State)
		} else if there == (loss.Damaged == 1) || len(found)+loss.Damaged != 3 {
			t.Fatalf("byte %d: %d found, %+v lost", at, len(found), loss)
		}
		if counters := at >= 320 && at < 320+4*8; counters && loss.Damaged != 1 {
			t.Errorf("byte %d is one of a counter, and was believed", at)
		}
	}
}

// Whatever instruction is the last of a process, the slot is valid, and holds the values before or after the change.
func TestAnyPointOfDeathLeavesAValidSlot(t *testing.T) {
	a, file := newArena(t, small())
	s := a.Put(new(stateOf(1)))
	s.Received(record.NewWindow(10, 0x3ff))
	s.Move(Path{Addr: netip.MustParseAddrPort("192.0.2.1:1")})
	// What Received and Move store before their last store is the copy that is not in use.
	s.slot.windows[(s.received+1)&1] = window{next: 99, bits: 7}
	s.slot.paths[(s.moved+1)&1].addr[3] = 9
	a.Close()
	_, found, loss := reopen(t, small(), file)
	state := found["device-b"].State
	if loss.Damaged != 0 || state.Window != record.NewWindow(10, 0x3ff) || state.Path.Addr != netip.MustParseAddrPort("192.0.2.1:1") {
		t.Errorf("lost %+v, restored %+v", loss, state)
	}
}

// A value of the slot's earlier session, or of another field, is not taken for one of this session.
func TestWordsBelongToTheirSessionAndField(t *testing.T) {
	var w word
	w.set(5, 3|saltSent)
	for _, salt := range []uint64{4 | saltSent, 3 | saltForged, 3} {
		if _, ok := w.get(salt); ok {
			t.Errorf("salt %x reads a word of another", salt)
		}
	}
	if v, ok := w.get(3 | saltSent); !ok || v != 5 {
		t.Error(v, ok)
	}
}

func TestAnotherSizeIsConverted(t *testing.T) {
	a, file := newArena(t, small())
	start := a.Start()
	for i := range byte(4) {
		s := a.Put(new(stateOf(i)))
		s.Application()[0] = i
	}
	copy(a.Block(0), "kept")
	a.Close()
	more := small()
	more.Slots, more.Blocks = 100, 3
	file = held(t, file)
	b, loss, err := Open(more, held(t, file), nil)
	if err != nil || loss != (Loss{}) || b.Used() != 4 || string(b.Block(0)[:4]) != "kept" {
		t.Fatal(err, loss)
	}
	for _, r := range b.Restored() {
		want := stateOf(r.Session.Application()[0])
		if !reflect.DeepEqual(r.State, want) {
			t.Errorf("got %+v, want %+v", r.State, want)
		}
	}
	if off := b.Start().Sub(start); off < -time.Millisecond || off > time.Millisecond {
		t.Errorf("the clock has moved by %v", off)
	}
	old := held(t, file)
	b.Retire()
	if _, _, err := Open(small(), old, nil); !errors.Is(err, ErrHeader) {
		t.Errorf("the arena that was copied can still be read: %v", err)
	}
	less, file := small(), held(t, b.File())
	less.Slots, less.Version = 3, 8
	b.Close()
	c, found, loss := reopen(t, less, file)
	if loss.NoRoom != 1 || len(found) != 3 || c.Used() != 3 {
		t.Errorf("found %d, lost %+v", len(found), loss)
	}
	for _, r := range found {
		if r.Session.Application()[0] != 0 {
			t.Error("bytes of another version were handed on")
		}
	}
}

func TestWhatIsNoArenaIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(h *header)
		want  error
	}{
		"version": {func(h *header) { h.version++ }, ErrVersion},
		"magic":   {func(h *header) { h.magic[0]++ }, ErrHeader},
		"size":    {func(h *header) { h.slots++; h.sum = h.checksum() }, ErrHeader},
		"sum":     {func(h *header) { h.slots-- }, ErrHeader},
		"high":    {func(h *header) { h.high = h.slots + 1 }, ErrHeader},
		"boot":    {func(h *header) { h.boot[0]++; h.sum = h.checksum() }, ErrBoot},
		"slot":    {func(h *header) { h.fixedSize++; h.sum = h.checksum() }, ErrHeader},
	} {
		a, file := newArena(t, small())
		tc.spoil(a.header)
		a.Close()
		if _, _, err := Open(small(), file, nil); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
	empty, err := os.Create(filepath.Join(t.TempDir(), "sessions"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(small(), empty, nil); !errors.Is(err, ErrHeader) {
		t.Error(err)
	}
}

func TestSessionsThatDoNotFitAreRefused(t *testing.T) {
	a, file := newArena(t, small())
	defer file.Close()
	defer a.Close()
	long, cid := stateOf(1), stateOf(2)
	long.Identity = string(make([]byte, MaxIdentity+1))
	cid.ReadCID = make([]byte, record.MaxCID+1)
	if a.Put(&long) != nil || a.Put(&cid) != nil || a.Used() != 0 {
		t.Error("stored")
	}
}

func TestRemovedKeysAreOverwritten(t *testing.T) {
	a, file := newArena(t, small())
	defer file.Close()
	defer a.Close()
	a.Remove(a.Put(new(stateOf(1))))
	if i := bytes.IndexFunc(a.memory[headerSize+2*a.cfg.blockSize():], func(r rune) bool { return r != 0 }); i >= 0 {
		t.Errorf("byte %d is left", i)
	}
}

func TestAFileHoldsAnArena(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions")
	open := func() *os.File {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	a, err := New(small(), open())
	if err != nil {
		t.Fatal(err)
	}
	a.Put(new(stateOf(3)))
	a.Close()
	if _, found, _ := reopen(t, small(), open()); len(found) != 1 {
		t.Errorf("%d sessions", len(found))
	}
}

// The arena against a map, over random operations and restarts with other sizes.
func TestModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	cfg := Config{Slots: 8, Application: 16}
	a, file := newArena(t, cfg)
	type entry struct {
		state State
		s     *Session
	}
	model := map[string]*entry{}
	full, restarts := 0, 0
	for step := range 20_000 {
		id := byte(random.IntN(12))
		name := stateOf(id).Identity
		e := model[name]
		switch {
		case random.IntN(500) == 0:
			a.Close()
			if random.IntN(2) == 0 {
				cfg.Slots = 8 + random.IntN(5)
			}
			b, loss, err := Open(cfg, file, nil)
			if err != nil || loss.Damaged != 0 {
				t.Fatal(step, err, loss)
			}
			a, file = b, held(t, b.File())
			found := map[string]*entry{}
			for _, r := range a.Restored() {
				found[r.State.Identity] = &entry{r.State, r.Session}
			}
			if len(found)+loss.NoRoom != len(model) {
				t.Fatalf("step %d: %d of %d sessions, %d without room", step, len(found), len(model), loss.NoRoom)
			}
			for name, e := range found {
				if !reflect.DeepEqual(e.state, model[name].state) {
					t.Fatalf("step %d: %s is %+v, want %+v", step, name, e.state, model[name].state)
				}
			}
			model = found
			restarts++
		case e == nil:
			state := stateOf(id)
			s := a.Put(&state)
			if (s == nil) != (len(model) >= cfg.Slots) {
				t.Fatalf("step %d: put into %d of %d: %v", step, len(model), cfg.Slots, s != nil)
			}
			if s == nil {
				full++
			} else {
				model[name] = &entry{state, s}
			}
		case random.IntN(6) == 0:
			a.Remove(e.s)
			delete(model, name)
		default:
			e.state.Sent++
			e.s.Advance(e.state.Sent)
			e.state.Window.Mark(e.state.Window.Newest() + uint64(random.IntN(3)))
			e.s.Received(e.state.Window)
			if random.IntN(4) == 0 {
				e.state.Path.Addr = netip.AddrPortFrom(e.state.Path.Addr.Addr(), uint16(step))
				e.s.Move(e.state.Path)
			}
		}
		if a.Used() != len(model) {
			t.Fatalf("step %d: %d used, want %d", step, a.Used(), len(model))
		}
	}
	a.Close()
	file.Close()
	if full < 100 || restarts < 20 {
		t.Errorf("%d times full, %d restarts: the model does not get there", full, restarts)
	}
}

func TestNoAllocationPerRecord(t *testing.T) {
	a, file := newArena(t, small())
	defer file.Close()
	defer a.Close()
	s, w := a.Put(new(stateOf(1))), record.NewWindow(9, 1)
	if n := testing.AllocsPerRun(1000, func() { s.Advance(10); s.Received(w); s.Active(time.Second); s.Forged(1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	a, err := New(small(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	s, w, n := a.Put(new(stateOf(1))), record.NewWindow(9, 1), uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		n++
		w.Mark(n)
		s.Advance(n)
		s.Received(w)
	}
}

// Open never believes a file: it restores sessions that Put could have stored, or refuses.
func FuzzOpen(f *testing.F) {
	a, err := New(small(), nil)
	if err != nil {
		f.Fatal(err)
	}
	a.Put(new(stateOf(1)))
	good := bytes.Clone(a.memory)
	a.Close()
	f.Add(0, []byte{0})
	f.Add(headerSize+256+320, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add(40, []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		spoiled := bytes.Clone(good)
		if at >= 0 && at < len(spoiled) {
			copy(spoiled[at:], patch)
		}
		file, err := os.OpenFile(filepath.Join(t.TempDir(), "sessions"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(spoiled); err != nil {
			t.Fatal(err)
		}
		b, _, err := Open(small(), file, nil)
		if err != nil {
			return
		}
		defer b.Close()
		for _, r := range b.Restored() {
			if r.State.Limit < 0 || len(r.State.Identity) > MaxIdentity {
				t.Errorf("restored %+v", r.State)
			}
			r.Session.Advance(r.State.Sent + 1)
		}
	})
}

// A note is stored with the session at once, and goes with it into an arena of another size, as its generation does.
func TestNotes(t *testing.T) {
	a, file := newArena(t, small())
	first, second := stateOf(1), stateOf(2)
	first.Note = 1<<48 - 1
	a.Put(&first)
	s := a.Put(&second)
	if note, ok := s.Noted(); note != 0 || !ok {
		t.Errorf("%x, %v", note, ok)
	}
	s.Note(77)
	a.Close()
	larger := small()
	larger.Slots = 9
	b, found, _ := reopen(t, larger, file)
	for identity, want := range map[string]uint64{first.Identity: 1<<48 - 1, second.Identity: 77} {
		if note, ok := found[identity].Session.Noted(); note != want || !ok {
			t.Errorf("%s: %x, %v", identity, note, ok)
		}
	}
	if one, two := found[first.Identity].Session.Generation(), found[second.Identity].Session.Generation(); one != 1 || two != 2 || b.Generation() != 2 {
		t.Errorf("generations %d and %d of %d", one, two, b.Generation())
	}
	kept := found[second.Identity].Session
	kept.Application()[len(kept.Application())-1] ^= 1
	if _, ok := kept.Noted(); ok {
		t.Error("a damaged note is believed")
	}
}
