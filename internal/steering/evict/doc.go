// Package evict says which entry of a bounded table makes room for a new one.
//
// State that has proven itself (a flow that its backend answered, an authenticated session, an address that returned a
// token) is never refused or evicted in favour of state that has not. A table that is full therefore removes an unproven
// entry: of the source that holds most unproven entries, if that is more than a sixteenth of them, the oldest; else the oldest
// of all. A flood from few sources evicts itself; a flood from many sources evicts what is oldest, so a real client has the
// time in which the flood renews all unproven entries, which is far longer than one round trip.
//
// An [Order] holds the entries of one table that may be evicted, by the number of their slot and by who is accountable for
// them: a source address ([Source]) or an identity. The table adds an entry when it is made, removes it when it ends or has
// proven itself, and calls First when it is full:
//
//	if table.full() {
//		slot, ok := order.First()
//		if !ok {
//			return errFull // all entries have proven themselves
//		}
//		table.remove(slot) // calls order.Remove
//	}
//	order.Add(slot, evict.SourceOf(client))
//
// A table that must always have room for new state reserves a small share of its slots for unproven entries: an entry that
// proves itself while all other slots hold proven ones stays in the Order. Renew moves an entry to the end of its source's
// queue, for tables in which the entry that has been silent longest must go first.
//
// All operations take constant time and allocate nothing once the Order has reached its size. The package is pure: no
// clock, no goroutine, no lock.
package evict
