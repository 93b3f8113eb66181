package ebpf

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

// sizes of the tables, fixed when they are made.
type sizes struct {
	buckets, fragmentBuckets int // of four
	ways, fragmentWays       int // used in each; below four only where the limit is
	vips                     int // places of one generation
	maglevCells, ownerCells  int
	flows, fragments         int // as the spec says
}

const ways = 4

// sizesFor gives each flow twice the room, so that a bucket seldom fills up
// before the table does. Limits of a few entries are kept exactly.
func sizesFor(limits lb.Limits) sizes {
	s := sizes{flows: limits.Flows, fragments: limits.Fragments}
	s.buckets, s.ways = buckets(limits.Flows)
	// A datagram in mode NAT has two entries.
	s.fragmentBuckets, s.fragmentWays = buckets(limits.Fragments)
	s.vips = 1 << bits.Len(8*lb.MaxVIPs-1)
	s.maglevCells = 1 << 23
	s.ownerCells = 1 << 22
	return s
}

func buckets(limit int) (n, used int) {
	if limit <= ways {
		return 1, limit
	}
	return 1 << bits.Len(uint((2*limit+ways-1)/ways-1)), ways
}

// maxFlows follows from the 24 bits that number an entry.
const maxFlows = 1 << 23

// tables are the maps, those that user space writes in place as memory.
type tables struct {
	maps   map[string]*ebpf.Map
	sizes  sizes
	inUse  sync.RWMutex // held in read by who reads the memory without Datapath.mu
	mapped [][]byte
	fault  func(name string) error // tests: fails a write; else nil

	control   *bpf.Control
	backends  []bpf.Backend // 2*slot + family
	maglev    []uint16
	owners    []uint16
	flows     []bpf.Bucket
	entries   []bpf.FlowEntry
	replies   []bpf.Bucket
	fragments []bpf.Bucket
	datagrams []bpf.FragmentEntry
	rates     []uint64
}

// specs returns the specs of both hooks' objects with the tables' sizes in them.
func (s sizes) adapt(spec *ebpf.CollectionSpec) {
	for name, entries := range map[string]int{
		bpf.MapFlows: s.buckets, bpf.MapReplies: s.buckets, bpf.MapFlowEntries: s.buckets * ways,
		bpf.MapFragments: s.fragmentBuckets, bpf.MapFragmentEntries: s.fragmentBuckets * ways,
		bpf.MapVips: 2 * s.vips, bpf.MapMaglev: s.maglevCells / 4, bpf.MapOwners: s.ownerCells / 4,
	} {
		if m := spec.Maps[name]; m != nil {
			m.MaxEntries = uint32(entries)
		}
	}
}

// openTables maps the memory of a loaded collection's maps.
func openTables(maps map[string]*ebpf.Map, s sizes) (t *tables, err error) {
	t = &tables{maps: maps, sizes: s}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	for name, to := range map[string]func([]byte){
		bpf.MapControls:        func(b []byte) { t.control = (*bpf.Control)(unsafe.Pointer(&b[0])) },
		bpf.MapBackends:        func(b []byte) { t.backends = view[bpf.Backend](b) },
		bpf.MapMaglev:          func(b []byte) { t.maglev = view[uint16](b) },
		bpf.MapOwners:          func(b []byte) { t.owners = view[uint16](b) },
		bpf.MapFlows:           func(b []byte) { t.flows = view[bpf.Bucket](b) },
		bpf.MapFlowEntries:     func(b []byte) { t.entries = view[bpf.FlowEntry](b) },
		bpf.MapReplies:         func(b []byte) { t.replies = view[bpf.Bucket](b) },
		bpf.MapFragments:       func(b []byte) { t.fragments = view[bpf.Bucket](b) },
		bpf.MapFragmentEntries: func(b []byte) { t.datagrams = view[bpf.FragmentEntry](b) },
		bpf.MapRates:           func(b []byte) { t.rates = view[uint64](b) },
	} {
		b, err := t.mmap(name)
		if err != nil {
			return t, err
		}
		to(b)
	}
	return t, nil
}

func (t *tables) mmap(name string) ([]byte, error) {
	m := t.maps[name]
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

func view[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(zero)))
}

// put writes one entry that Apply can still take back.
func (t *tables) put(name string, key, value any) error {
	if t.fault != nil {
		if err := t.fault(name); err != nil {
			return err
		}
	}
	return t.maps[name].Put(key, value)
}

// readStep is how many buckets are read in one step: microseconds of work.
const readStep = 4096

// scan calls read for all buckets of a table in steps, without Datapath.mu: programs run, and so do changes. False: the
// tables were closed meanwhile.
func (t *tables) scan(table []bpf.Bucket, read func(i int, b *bpf.Bucket)) bool {
	for from := 0; from < len(table); from += readStep {
		if !t.step(func() {
			for i := from; i < min(from+readStep, len(table)); i++ {
				read(i, &table[i])
			}
		}) {
			return false
		}
	}
	return true
}

// step runs read while the tables are open. False: they are closed.
func (t *tables) step(read func()) bool {
	t.inUse.RLock()
	defer t.inUse.RUnlock()
	if t.mapped == nil {
		return false
	}
	read()
	return true
}

// close gives the memory back; the maps stay with their owner.
func (t *tables) close() {
	t.inUse.Lock()
	defer t.inUse.Unlock()
	for _, b := range t.mapped {
		unix.Munmap(b)
	}
	t.mapped = nil
}

// randomWords are the key of the tables' hash.
func randomWords() (w [20]uint64) {
	var b [160]byte
	rand.Read(b[:]) // never fails
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return w
}

// grace waits until every program run that started before has ended.
func grace() {
	// MEMBARRIER_CMD_GLOBAL is synchronize_rcu. Kernels without it: none that runs us.
	unix.Syscall(unix.SYS_MEMBARRIER, 1, 0, 0)
}
