package handover

import (
	"bytes"
	"cmp"
	"slices"
)

// Put writes the record of an id and replaces an earlier one. The kernel has the record when Put returns. A record
// that cannot be written is counted, and the first of consecutive failures is logged.
func (k *Store) Put(id uint64, record []byte) {
	k.change(id, func(j *journal) error { return j.put(id, record) })
}

// Delete removes the record of an id. Do not delete records because the process ends.
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
		k.log.Warn("a record of session state is not stored; its session may not survive this process", "record", id, "error", err)
	}
	k.journal.failing = err != nil
}

// Records calls yield for every record in the order of ids, for the restore at the start. The caller owns record.
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
	for _, e := range entries { // without the lock, because the caller may put and delete records
		if !yield(e.id, e.record) {
			return
		}
	}
}
