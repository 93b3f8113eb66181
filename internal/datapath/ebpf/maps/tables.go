package maps

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Sizes of the tables, fixed when they are made.
type Sizes struct {
	Buckets, FragmentBuckets   int // of four
	BucketSlots, FragmentSlots int // used in each; below four only where the limit is
	VIPs                       int // places of one generation
	MaglevRanges, OwnerRanges  int
	flows, fragments           int // as the spec says
}

// SizesFor gives each flow twice the room, so that a bucket seldom fills up
// before the table does. Limits of a few entries are kept exactly.
func SizesFor(limits lb.Limits) Sizes {
	s := Sizes{flows: limits.Flows, fragments: limits.Fragments}
	s.Buckets, s.BucketSlots = buckets(limits.Flows)
	// A datagram in mode NAT has two entries.
	s.FragmentBuckets, s.FragmentSlots = buckets(limits.Fragments)
	s.VIPs = 1 << bits.Len(8*lb.MaxVIPs-1)
	s.MaglevRanges = 1 << 23
	s.OwnerRanges = 1 << 22
	return s
}

// Flows is limits.flows.
func (s Sizes) Flows() int { return s.flows }

// Fragments is limits.fragments.
func (s Sizes) Fragments() int { return s.fragments }

func buckets(limit int) (n, used int) {
	if limit <= bpf.BucketSlots {
		return 1, limit
	}
	return 1 << bits.Len(uint((2*limit+bpf.BucketSlots-1)/bpf.BucketSlots-1)), bpf.BucketSlots
}

// MaxFlows follows from the 24 bits that number an entry.
const MaxFlows = 1 << 23

// Tables are the maps, those that user space writes in place as memory.
type Tables struct {
	Maps   map[string]*ebpf.Map
	Sizes  Sizes
	inUse  sync.RWMutex // held in read by who reads the memory without Datapath.mu
	mapped [][]byte
	Fault  func(name string) error // tests: fails a write; else nil

	Hash [20]uint64 // words of the tables' hash, as the programs have them

	Control   *bpf.Control
	Backends  []bpf.Backend // 2*slot + family
	Maglev    []uint16
	Owners    []uint16
	Flows     []bpf.Bucket
	Entries   []bpf.FlowEntry
	Replies   []bpf.Bucket
	Fragments []bpf.Bucket
	Datagrams []bpf.FragmentEntry
	Rates     []uint64
	// BackendCounts: cpu*bpf.MaxBackends + slot.
	BackendCounts []bpf.BackendCount
}

// specs returns the specs of both hooks' objects with the tables' sizes in them.
func (s Sizes) Adapt(spec *ebpf.CollectionSpec) {
	for name, entries := range map[string]int{
		bpf.MapFlows: s.Buckets, bpf.MapReplies: s.Buckets, bpf.MapFlowEntries: s.Buckets * bpf.BucketSlots,
		bpf.MapFragments: s.FragmentBuckets, bpf.MapFragmentEntries: s.FragmentBuckets * bpf.BucketSlots,
		bpf.MapVips: 2 * s.VIPs, bpf.MapMaglev: s.MaglevRanges / 4, bpf.MapOwners: s.OwnerRanges / 4,
		bpf.MapBackendCounts: bpf.MaxBackends * ebpf.MustPossibleCPU(),
	} {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = uint32(entries)
		}
	}
}

// Open maps the memory of a loaded collection's maps.
func Open(maps map[string]*ebpf.Map, s Sizes) (t *Tables, err error) {
	t = &Tables{Maps: maps, Sizes: s}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	for name, to := range map[string]func([]byte){
		bpf.MapControls:        func(b []byte) { t.Control = (*bpf.Control)(unsafe.Pointer(&b[0])) },
		bpf.MapBackends:        func(b []byte) { t.Backends = View[bpf.Backend](b) },
		bpf.MapMaglev:          func(b []byte) { t.Maglev = View[uint16](b) },
		bpf.MapOwners:          func(b []byte) { t.Owners = View[uint16](b) },
		bpf.MapFlows:           func(b []byte) { t.Flows = View[bpf.Bucket](b) },
		bpf.MapFlowEntries:     func(b []byte) { t.Entries = View[bpf.FlowEntry](b) },
		bpf.MapReplies:         func(b []byte) { t.Replies = View[bpf.Bucket](b) },
		bpf.MapFragments:       func(b []byte) { t.Fragments = View[bpf.Bucket](b) },
		bpf.MapFragmentEntries: func(b []byte) { t.Datagrams = View[bpf.FragmentEntry](b) },
		bpf.MapRates:           func(b []byte) { t.Rates = View[uint64](b) },
		bpf.MapBackendCounts:   func(b []byte) { t.BackendCounts = View[bpf.BackendCount](b) },
	} {
		b, err := t.Mmap(name)
		if err != nil {
			return t, err
		}
		to(b)
	}
	return t, nil
}

func (t *Tables) Mmap(name string) ([]byte, error) {
	m := t.Maps[name]
	if m == nil {
		return nil, fmt.Errorf("no map %s in the program", name)
	}
	size := int(m.ValueSize()+7) &^ 7 * int(m.MaxEntries())
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)&^(page-1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s into memory: %w", name, err)
	}
	t.mapped = append(t.mapped, b)
	return b[:size], nil
}

func View[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(zero)))
}

// Put writes one entry that Apply can still take back.
func (t *Tables) Put(name string, key, value any) error {
	if t.Fault != nil {
		if err := t.Fault(name); err != nil {
			return err
		}
	}
	return t.Maps[name].Put(key, value)
}

// readStep is how many buckets are read in one step: microseconds of work.
const readStep = 4096

// Scan calls read for all buckets of a table in steps, without Datapath.mu: programs run, and so do changes. False: the
// tables were closed meanwhile.
func (t *Tables) Scan(table []bpf.Bucket, read func(i int, b *bpf.Bucket)) bool {
	for from := 0; from < len(table); from += readStep {
		if !t.Step(func() {
			for i := from; i < min(from+readStep, len(table)); i++ {
				read(i, &table[i])
			}
		}) {
			return false
		}
	}
	return true
}

// Step runs read while the tables are open. False: they are closed.
func (t *Tables) Step(read func()) bool {
	t.inUse.RLock()
	defer t.inUse.RUnlock()
	if t.mapped == nil {
		return false
	}
	read()
	return true
}

// Close gives the memory back; the maps stay with their owner.
func (t *Tables) Close() {
	t.inUse.Lock()
	defer t.inUse.Unlock()
	for _, b := range t.mapped {
		unix.Munmap(b)
	}
	t.mapped = nil
}

// RandomWords are the key of the tables' hash.
func RandomWords() (w [20]uint64) {
	var b [160]byte
	rand.Read(b[:]) // never fails
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return w
}

// Grace waits until every program run that started before has ended.
func Grace() {
	// MEMBARRIER_CMD_GLOBAL is synchronize_rcu. Kernels without it: none that runs us.
	unix.Syscall(unix.SYS_MEMBARRIER, 1, 0, 0)
}

// PutAll writes entries that Apply can still take back.
func PutAll[K comparable, V any](t *Tables, name string, entries map[K]V) error {
	for k, v := range entries {
		if err := t.Put(name, k, v); err != nil {
			return err
		}
	}
	return nil
}

// DeleteAll removes entries.
func DeleteAll[K comparable, V any](m *ebpf.Map, entries map[K]V) {
	for k := range entries {
		m.Delete(k)
	}
}
