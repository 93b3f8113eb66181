package pins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	stdmaps "maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// meaning changes when the same bytes in the maps come to mean something else.
const meaning = 4

// abi is a hash of everything in which two builds must agree to share tables:
// kinds, sizes and layouts of the maps.
func abi(spec *ebpf.CollectionSpec) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "meaning %d\n", meaning)
	for _, name := range slices.Sorted(stdmaps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		if strings.HasPrefix(name, ".") {
			continue
		}
		fmt.Fprintf(h, "%s %s %d %d %d %d\n", name, m.Type, m.KeySize, m.ValueSize, m.MaxEntries, m.Flags)
		for _, t := range []btf.Type{m.Key, m.Value} {
			writeType(h, t, 0)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// LayoutOf is the hash of the tables for some limits; both hooks' objects have the same maps.
func LayoutOf(limits lb.Limits) (layout string, spec *ebpf.CollectionSpec, err error) {
	if spec, err = bpf.LoadXDP(); err != nil {
		return "", nil, fmt.Errorf("read the object: %w", err)
	}
	maps.SizesFor(limits).Adapt(spec)
	layout, err = abi(spec)
	return layout, spec, err
}

// writeType writes a type's layout with the names of its fields.
func writeType(w io.Writer, t btf.Type, depth int) {
	if t == nil || depth > 8 {
		return
	}
	t = btf.UnderlyingType(t)
	switch t := t.(type) {
	case *btf.Struct:
		for _, m := range t.Members {
			fmt.Fprintf(w, "%d:%s ", m.Offset, m.Name)
			writeType(w, m.Type, depth+1)
		}
	case *btf.Union:
		for _, m := range t.Members {
			fmt.Fprintf(w, "|%s ", m.Name)
			writeType(w, m.Type, depth+1)
		}
	case *btf.Array:
		fmt.Fprintf(w, "[%d]", t.Nelems)
		writeType(w, t.Type, depth+1)
	default:
		size, _ := btf.Sizeof(t)
		fmt.Fprintf(w, "%d\n", size)
	}
}

// Kept are maps found in pins, of a data path like this one.
type Kept struct {
	Maps    map[string]*ebpf.Map
	Store   *Store
	Fixture Fixture
}

func (k *Kept) Close() {
	for _, m := range k.Maps {
		m.Close()
	}
	k.Store.Close()
}

// UnlikeError says why what is pinned cannot be taken over.
type UnlikeError struct{ Why string }

func (e UnlikeError) Error() string { return e.Why }

// Find looks for tables in the pins. Nil without an error: there are none. An
// errUnlike: there are, but of no use.
func (p *Dir) Find() (k *Kept, err error) {
	if len(names(p.MapsDir())) == 0 {
		return nil, nil
	}
	k = &Kept{Maps: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			k.Close()
			k = nil
		}
	}()
	if k.Store, err = LoadStore(p, nil); err != nil {
		return k, UnlikeError{err.Error()}
	}
	if err := k.Store.Read(FixtureText, &k.Fixture); errors.Is(err, os.ErrNotExist) {
		return k, UnlikeError{"they were never finished"}
	} else if err != nil {
		return k, UnlikeError{err.Error()}
	}
	own, spec, err := LayoutOf(k.Fixture.Limits)
	if err != nil {
		return k, err
	}
	if own != k.Fixture.ABI {
		return k, UnlikeError{fmt.Sprintf("another build of weir made them (layout %s, this one has %s)", k.Fixture.ABI, own)}
	}
	for _, name := range tableNames(spec) {
		m, err := ebpf.LoadPinnedMap(p.MapAt(name), nil)
		if err != nil {
			return k, UnlikeError{fmt.Sprintf("map %s: %v", name, err)}
		}
		k.Maps[name] = m
	}
	var control bpf.Control
	if err := k.Maps[bpf.MapControls].Lookup(uint32(0), &control); err != nil {
		return k, fmt.Errorf("map %s: %w", bpf.MapControls, err)
	}
	// Killed in its first Apply, a process leaves tables that no generation is in.
	if err := k.Store.Read(control.Active&1, new(Generation)); errors.Is(err, os.ErrNotExist) {
		return k, UnlikeError{"they were never finished"}
	}
	return k, nil
}

// PinAll pins the tables of a new data path. The fixture comes last: without it
// a later start does not use what is there.
func (p *Dir) PinAll(all map[string]*ebpf.Map, k *Store, limits lb.Limits, hash [20]uint64) error {
	layout, spec, err := LayoutOf(limits)
	if err != nil {
		return err
	}
	if err := p.dropMaps(); err != nil {
		return fmt.Errorf("clear pins: %w", err)
	}
	for _, name := range tableNames(spec) {
		if err := all[name].Pin(p.MapAt(name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	if err := k.pin(p); err != nil {
		return err
	}
	return k.Write(FixtureText, Fixture{ABI: layout, Hash: hash, Limits: limits, Netns: attach.NamespaceID()})
}

// tableNames are the maps that outlive the process.
func tableNames(spec *ebpf.CollectionSpec) []string {
	var list []string
	for name := range spec.Maps {
		if name[0] != '.' {
			list = append(list, name)
		}
	}
	return list
}
