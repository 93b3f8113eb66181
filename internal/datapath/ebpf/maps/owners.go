package maps

import (
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// maxDense is the greatest owner id that has an element of its own.
const maxDense = 1<<16 - 1

// MaglevTable is a service's table with slots for backends, or numbers that are no slot for those without a server.
func MaglevTable(s *lb.Service, slots []uint16) []uint16 {
	table := make([]uint16, TableSize(s))
	if len(s.Maglev) == 0 { // earlier tables have backends, this one has none
		for i := range table {
			table[i] = bpf.NoSlot
		}
	}
	writeSlots(table, s, s.Maglev, slots)
	return table
}

// TableSize is the number of slots in each table of a service; 0: no table has a backend.
func TableSize(s *lb.Service) int {
	if s.Earlier != nil {
		return len(s.Earlier.TCP)
	}
	return len(s.Maglev)
}

// EarlierTables are the tables of lb.Service.Earlier, one after the other, each from a multiple of four; nil: there are none.
func EarlierTables(s *lb.Service, slots []uint16) []uint16 {
	if s.Earlier == nil {
		return nil
	}
	size := (len(s.Earlier.TCP) + 3) &^ 3
	table := make([]uint16, 2*size)
	writeSlots(table, s, s.Earlier.TCP, slots)
	writeSlots(table[size:], s, s.Earlier.Other, slots)
	return table
}

func writeSlots(table []uint16, s *lb.Service, owners []int32, slots []uint16) {
	for i, backend := range owners {
		if backend < 0 {
			table[i] = bpf.NoSlot
			continue
		}
		switch s.Backends[backend].Action {
		case lb.ActDrop:
			table[i] = bpf.SlotDrop
		case lb.ActReject:
			table[i] = bpf.SlotReject
		default:
			table[i] = slots[backend]
		}
	}
}

// OwnerTable are the slots of a layout's owner ids: those up to maxDense by id, and the large ones apart. The table is never
// empty, for its start also names it where the large ones are.
func OwnerTable(s *lb.Service, slots []uint16, layout int) (table []uint16, large map[uint32]uint16) {
	top := 0
	for _, b := range s.Backends {
		for _, id := range b.Nodes[layout] {
			if id <= maxDense {
				top = max(top, int(id))
			}
		}
	}
	table, large = make([]uint16, top+1), map[uint32]uint16{}
	for i := range table {
		table[i] = bpf.NoSlot
	}
	for i, b := range s.Backends {
		for _, id := range b.Nodes[layout] {
			if id <= maxDense {
				table[id] = slots[i]
			} else {
				large[id] = slots[i]
			}
		}
	}
	return table, large
}
