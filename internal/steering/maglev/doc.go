// Package maglev builds the look-up table of Maglev consistent hashing
// (Eisenbud et al., NSDI 2016, section 3.4), with weights.
//
// Each entry has its own permutation of the slots, drawn from its name alone.
// Entries take turns, in the order of their names, to claim the next free slot
// of their permutation; an entry of weight w takes w turns per round for every
// turn of an entry of weight 1. So the same entries give the same table on every load
// balancer, each gets its share of slots to within a turn, and a change moves
// few slots but those it must.
//
//	table := maglev.Build([]maglev.Entry{{"a", 1}, {"b", 2}}, maglev.DefaultSize)
//	owner := table[hash%uint64(len(table))] // an index into the entries
package maglev
