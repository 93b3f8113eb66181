package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

const fragmentSpec = `
limits: {flows: 65536, fragments: %d, held_fragments: %d}
services:
- name: pool
  mode: %s
  vips: [{address: "192.0.2.2", protocol: udp, port: 80}]
  backends: [{name: a, address: "10.2.0.1"}, {name: b, address: "10.2.0.2"}]
`

// fragmentTable runs fragments through a program whose time stands still: any number of them comes at once.
type fragmentTable struct {
	w      *world
	d      *Datapath
	before FragmentEvictions // of other tests with these tables
}

// fragmentTables runs a test on both hooks and in both kinds of modes.
func fragmentTables(t *testing.T, fragments, held int, test func(f *fragmentTable) error) {
	t.Parallel()
	w := newWorld(t)
	defer w.close()
	for _, hook := range hooks {
		for _, mode := range []string{"l2dsr", "nat"} {
			t.Run(hook.String()+"/"+mode, func(t *testing.T) {
				f := &fragmentTable{w: w, d: w.serving(t, hook, fmt.Sprintf(fragmentSpec, fragments, held, mode))}
				f.before = f.d.Counters().FragmentEvictions
				ebpftest.Do(t, w.host, func() error {
					w.there = true
					defer func() { w.there = false }()
					return errors.Join(w.drain(f.d), test(f))
				})
			})
		}
	}
}

// pieces are the fragments of one datagram, one of 65,536 of each source.
func (f *fragmentTable) pieces(source, id int) [][]byte {
	d, err := packet.ParseText("udp 10.0.0.0:5000 > 192.0.2.2:80 payload=1200 id=1 frag=600 csum=0")
	if err != nil {
		panic(err)
	}
	for _, p := range d.Packets {
		binary.BigEndian.PutUint32(p[12:], 11<<24+uint32(source))
		binary.BigEndian.PutUint16(p[4:], uint16(id))
		binary.BigEndian.PutUint16(p[10:], 0)
		binary.BigEndian.PutUint16(p[10:], packet.Checksum(p[:20], 0))
	}
	return d.Packets
}

// frame gives one fragment of a datagram to the program, and wants it to end in one of these ways.
func (f *fragmentTable) frame(source, id, piece int, want ...lb.Reason) error {
	r, err := f.w.packet(f.d, f.pieces(source, id)[piece], false, 0)
	if err == nil && !slices.Contains(want, r.Reason) {
		err = fmt.Errorf("datagram %d of source %d: fragment %d ended as %s, want %v", id, source, piece, r.Reason, want)
	}
	return err
}

// first sends a first fragment, which opens a flow or finds it.
func (f *fragmentTable) first(source, id int) error {
	return f.frame(source, id, 0, lb.ReasonMaglev, lb.ReasonConntrack)
}

// inOrder sends a datagram as its fragments were made.
func (f *fragmentTable) inOrder(source, id int) error {
	return errors.Join(f.first(source, id), f.frame(source, id, 1, lb.ReasonFragment), f.frame(source, id, 2, lb.ReasonFragment))
}

// evictions reads the counters, since the test began.
func (f *fragmentTable) evictions() FragmentEvictions {
	now, before := f.d.Counters().FragmentEvictions, f.before
	return FragmentEvictions{
		Known: now.Known - before.Known, Left: now.Left - before.Left, Waiting: now.Waiting - before.Waiting,
		Lost: now.Lost - before.Lost, Held: now.Held - before.Held,
	}
}

// TestRootFirstFragmentFlood: first fragments, ten times what the table holds, leave room for those after them.
func TestRootFirstFragmentFlood(t *testing.T) {
	fragmentTables(t, 256, 16, func(f *fragmentTable) error {
		for i := range 4000 {
			if err := f.first(1000+i, i); err != nil {
				return err
			}
			if i%10 == 0 {
				if err := f.inOrder(i%7, i); err != nil {
					return err
				}
			}
		}
		if got := f.evictions(); got.Known == 0 || got.Waiting+got.Lost != 0 {
			return fmt.Errorf("evicted %+v, want known ones", got)
		}
		return nil
	})
}

// TestRootOrphanFlood: later fragments without a first one evict neither a known datagram nor that of a first
// fragment.
func TestRootOrphanFlood(t *testing.T) {
	fragmentTables(t, 2048, 16, func(f *fragmentTable) error {
		const known = 100
		for i := range known {
			if err := f.first(i, 1); err != nil {
				return err
			}
		}
		for i := range 8000 {
			if err := f.frame(1000+i, i, 1, lb.ReasonFragmentEarly, lb.ReasonHoldFull); err != nil {
				return err
			}
			if i%40 == 0 {
				if err := f.inOrder(i%7, i+2); err != nil {
					return err
				}
			}
		}
		for i := range known {
			if err := f.frame(i, 1, 1, lb.ReasonFragment); err != nil {
				return fmt.Errorf("known before the flood: %w", err)
			}
		}
		if got := f.evictions(); got.Known != 0 || got.Lost == 0 {
			return fmt.Errorf("evicted %+v, want no known ones", got)
		}
		return nil
	})
}

// TestRootOrphansInAFullTable: where all entries are known ones, an orphan leaves none.
func TestRootOrphansInAFullTable(t *testing.T) {
	fragmentTables(t, 4, 16, func(f *fragmentTable) error {
		for i := range 4 {
			if err := f.first(i, 1); err != nil {
				return err
			}
		}
		for i := range 100 {
			if err := f.frame(1000+i, i, 1, lb.ReasonHoldFull); err != nil {
				return err
			}
		}
		for i := range 4 {
			if err := f.frame(i, 1, 1, lb.ReasonFragment); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestRootWaitingIsEvicted: a first fragment evicts datagrams that wait for theirs, whose share of what may be
// held is free again.
func TestRootWaitingIsEvicted(t *testing.T) {
	fragmentTables(t, 4, 4, func(f *fragmentTable) error {
		for i := range 4 {
			if err := f.frame(1000+i, i, 1, lb.ReasonFragmentEarly); err != nil {
				return err
			}
		}
		for i := range 4 {
			if err := f.first(i, 1); err != nil {
				return err
			}
		}
		if got, held := f.evictions(), f.d.tables.Control.Held; got.Waiting != 4 || held != 0 {
			return fmt.Errorf("evicted %+v, want 4 that waited; %d are held, want 0", got, held)
		}
		return nil
	})
}

// TestRootReorderedSurviveOrphans: of the source that holds most the oldest goes, so datagrams of others wait for their
// first fragment undisturbed; where orphans come from as many sources as there are orphans, for as long as it takes them to
// fill what may be held.
func TestRootReorderedSurviveOrphans(t *testing.T) {
	const held = 64
	for name, sources := range map[string]int{"one source": 1, "each its own": 1 << 16} {
		t.Run(name, func(t *testing.T) {
			fragmentTables(t, 4096, held, func(f *fragmentTable) error {
				h := newHolder(f.d.tables, f.d.snapshot.Limits, &f.d.heldEvicted)
				orphans := 0
				orphan := func() error {
					orphans++
					return errors.Join(f.frame(1000+orphans%sources, orphans, 1, lb.ReasonFragmentEarly), f.w.give(f.d, h))
				}
				for range 2 * held {
					if err := orphan(); err != nil {
						return err
					}
				}
				for id := range 20 {
					if err := errors.Join(f.frame(1, id, 1, lb.ReasonFragmentEarly), f.frame(1, id, 2, lb.ReasonFragmentEarly), f.w.give(f.d, h)); err != nil {
						return err
					}
					for range held / 2 {
						if err := orphan(); err != nil {
							return err
						}
					}
					before := h.count
					if err := errors.Join(f.first(1, id), f.w.give(f.d, h)); err != nil {
						return err
					}
					if released := before - h.count; released != 2 {
						return fmt.Errorf("datagram %d: %d fragments were released, want 2", id, released)
					}
				}
				if got := int(f.d.tables.Control.Held); got != h.count || got > held {
					return fmt.Errorf("the program counts %d held fragments, there are %d", got, h.count)
				}
				if want := uint64(orphans - h.count); f.evictions().Held < want {
					return fmt.Errorf("%+v, want %d held ones", f.evictions(), want)
				}
				return nil
			})
		})
	}
}
