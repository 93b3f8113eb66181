package pins

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Store is what must outlive the process in addition to the tables: which name has
// which number, and what was changed on the machine. It sits in maps of its
// own, pinned with the others, so that it lives exactly as long as they do.
//
// The journal has one text for each of the two generations. A text is complete
// before the word control.active names its generation, so whenever the process
// dies, the active generation has its text.
type Store struct {
	journal     *ebpf.Map // {text, chunk} → chunk of JSON
	Gone        *ebpf.Map // service number → counts of its backends that are gone
	GoneReasons *ebpf.Map // reason → counts of services that are gone
	neighbours  *ebpf.Map // neighbours made managed
	offloads    *ebpf.Map // interfaces whose GRO was turned on
}

// FixtureText is the number of the text of the Fixture; 0 and 1 are those of the generations.
const FixtureText = 2

const chunkBytes = 4096 - 8

// chunk is one value of the journal. Each says the length and sum of the text.
type chunk struct {
	Length uint32
	Sum    uint32
	Data   [chunkBytes]byte
}

type chunkKey struct{ Text, Chunk uint32 }

// neighbour is a key of Store.neighbours.
type neighbour struct {
	Address [16]byte
	Index   uint32
}

// offload is a key of Store.offloads.
type offload struct {
	Netns uint64
	Index uint32
	_     uint32
}

// Fixture is what stays as it was when the tables were made.
type Fixture struct {
	ABI    string     `json:"abi"`
	Hash   [20]uint64 `json:"hash"` // of the flow tables
	Limits lb.Limits  `json:"limits"`
	Netns  uint64     `json:"netns"`
}

// Generation is one generation's owners of numbers, slots and array elements.
type Generation struct {
	Services []Service `json:"services"`
}

type Service struct {
	Name     string    `json:"name"`
	Number   uint16    `json:"number"`
	Mode     lb.Mode   `json:"mode"`
	Size     int       `json:"size"` // of the Maglev table
	Maglev   [2]int    `json:"maglev"`
	Earlier  [2]int    `json:"earlier,omitzero"`
	Owners   [][2]int  `json:"owners"` // by layout
	Backends []Backend `json:"backends"`
}

type Backend struct {
	Name     string     `json:"name"`
	Slot     uint16     `json:"slot"`
	Mark     uint32     `json:"mark,omitempty"`
	Address4 netip.Addr `json:"a4,omitzero"`
	Address6 netip.Addr `json:"a6,omitzero"`
	Port     uint16     `json:"port,omitempty"`
}

// storeSpecs are its maps.
func storeSpecs() map[string]*ebpf.MapSpec {
	const noPrealloc = 1 // BPF_F_NO_PREALLOC
	return map[string]*ebpf.MapSpec{
		"weir_journal":    {Name: "weir_journal", Type: ebpf.Hash, KeySize: 8, ValueSize: 4096, MaxEntries: 1 << 14, Flags: noPrealloc},
		"weir_gone":       {Name: "weir_gone", Type: ebpf.Array, KeySize: 4, ValueSize: 40, MaxEntries: bpf.MaxServices},
		"weir_gone_why":   {Name: "weir_gone_why", Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: bpf.Reasons},
		"weir_neighbours": {Name: "weir_neighbours", Type: ebpf.Hash, KeySize: 20, ValueSize: 4, MaxEntries: 1 << 17, Flags: noPrealloc},
		"weir_offloads":   {Name: "weir_offloads", Type: ebpf.Hash, KeySize: 16, ValueSize: 4, MaxEntries: 1 << 12, Flags: noPrealloc},
	}
}

func (k *Store) fields() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		"weir_journal": &k.journal, "weir_gone": &k.Gone, "weir_gone_why": &k.GoneReasons,
		"weir_neighbours": &k.neighbours, "weir_offloads": &k.offloads,
	}
}

// NewStore makes the maps.
func NewStore() (*Store, error) {
	k := &Store{}
	specs := storeSpecs()
	for name, at := range k.fields() {
		m, err := ebpf.NewMap(specs[name])
		if err != nil {
			k.Close()
			return nil, fmt.Errorf("make map %s: %w", name, err)
		}
		*at = m
	}
	return k, nil
}

// LoadStore opens the maps from their pins. The error wraps os.ErrNotExist
// where one is missing.
func LoadStore(p *Dir, options *ebpf.LoadPinOptions) (*Store, error) {
	k := &Store{}
	specs := storeSpecs()
	for name, at := range k.fields() {
		m, err := ebpf.LoadPinnedMap(p.MapAt(name), options)
		if err == nil {
			*at = m
			err = specs[name].Compatible(m)
		}
		if err != nil {
			k.Close()
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	return k, nil
}

func (k *Store) pin(p *Dir) error {
	for name, at := range k.fields() {
		if err := (*at).Pin(p.MapAt(name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

func (k *Store) Close() {
	if k == nil {
		return
	}
	for _, at := range k.fields() {
		if *at != nil {
			(*at).Close()
		}
	}
}

// Write replaces one text.
func (k *Store) Write(text uint32, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	c := chunk{Length: uint32(len(b)), Sum: crc32.ChecksumIEEE(b)}
	n := uint32(0)
	for ; len(b) > 0; n++ {
		taken := copy(c.Data[:], b)
		b = b[taken:]
		if err := k.journal.Put(chunkKey{text, n}, &c); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	for ; ; n++ { // what a longer text had
		if err := k.journal.Delete(chunkKey{text, n}); err != nil {
			if errors.Is(err, ebpf.ErrKeyNotExist) {
				return nil
			}
			return fmt.Errorf("journal: %w", err)
		}
	}
}

// Read returns one text. os.ErrNotExist: never written.
func (k *Store) Read(text uint32, into any) error {
	var c chunk
	if err := k.journal.Lookup(chunkKey{text, 0}, &c); errors.Is(err, ebpf.ErrKeyNotExist) {
		return os.ErrNotExist
	} else if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	length, sum := int(c.Length), c.Sum
	if length > chunkBytes<<14 {
		return errors.New("journal: its length is wrong")
	}
	b := make([]byte, 0, length)
	for n := uint32(1); ; n++ {
		b = append(b, c.Data[:min(length-len(b), chunkBytes)]...)
		if len(b) == length {
			break
		}
		if err := k.journal.Lookup(chunkKey{text, n}, &c); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	if crc32.ChecksumIEEE(b) != sum {
		return errors.New("journal: its sum is wrong")
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// NoteManaged notes a neighbour before it is made a managed one.
func (k *Store) NoteManaged(index int, address netip.Addr) error {
	return k.neighbours.Put(neighbour{address.As16(), uint32(index)}, uint32(1))
}

// NoteOffload notes an interface of the calling thread's namespace before its GRO is turned on.
func (k *Store) NoteOffload(index int) error {
	return k.offloads.Put(offload{Netns: attach.NamespaceID(), Index: uint32(index)}, uint32(1))
}

// HandTo gives the list of what was changed on the machine to another Store.
func (k *Store) HandTo(to *Store) {
	var n neighbour
	var o offload
	var one uint32
	for it := k.neighbours.Iterate(); it.Next(&n, &one); {
		to.neighbours.Put(n, one)
	}
	for it := k.offloads.Iterate(); it.Next(&o, &one); {
		to.offloads.Put(o, one)
	}
}

// MarshalBinary makes a neighbour a map key without padding.
func (n neighbour) MarshalBinary() ([]byte, error) {
	return binary.LittleEndian.AppendUint32(append([]byte(nil), n.Address[:]...), n.Index), nil
}

// UnmarshalBinary is its inverse.
func (n *neighbour) UnmarshalBinary(b []byte) error {
	if len(b) != 20 {
		return fmt.Errorf("a neighbour of %d bytes", len(b))
	}
	copy(n.Address[:], b)
	n.Index = binary.LittleEndian.Uint32(b[16:])
	return nil
}
