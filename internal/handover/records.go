package handover

import (
	"bytes"
	"cmp"
	"slices"
)

// Put writes the record of an id, in place of an earlier one. It is in the kernel's hands when Put returns. A record that
// cannot be written is counted, and said when the first of a run is.
func (k *Store) Put(id uint64, record []byte) {
	k.change(id, func(j *journal) error { return j.put(id, record) })
}

// Delete removes the record of an id. Ending the process is no reason to delete.
func (k *Store) Delete(id uint64) {
	k.change(id, func(j *journal) error { return j.delete(id) })
}

func (k *Store) change(id uint64, do func(*journal) error) {
	k.journalMu.Lock()
	defer k.journalMu.Unlock()
	if k.journal == nil {
		return
	}
	err := do(k.journal)
	if err != nil && !k.journal.failing {
		k.log.Warn("a record is not kept; its allocation may not survive this process", "record", id, "error", err)
	}
	k.journal.failing = err != nil
}

// Records yields every record in the order of ids, for the restore at the start. record is the caller's.
func (k *Store) Records(yield func(id uint64, record []byte) bool) {
	type entry struct {
		id     uint64
		record []byte
	}
	var entries []entry
	k.journalMu.Lock()
	if k.journal != nil {
		err := k.journal.each(func(id uint64, record []byte) bool {
			entries = append(entries, entry{id, bytes.Clone(record)})
			return true
		})
		if err != nil {
			k.log.Error("read the journal", "error", err)
		}
	}
	k.journalMu.Unlock()
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	for _, e := range entries { // unlocked: the caller may put and delete
		if !yield(e.id, e.record) {
			return
		}
	}
}
