// Package maglev builds the look-up table of Maglev consistent hashing
// (Eisenbud et al., NSDI 2016, section 3.4), with weights.
//
// Each entry has its own permutation of the slots, which depends on its name alone. The entries take turns, in the order of
// their names, to claim the next free slot of their permutation; an entry of weight w takes w turns in each round in which
// an entry of weight 1 takes one. Therefore the same entries give the same table on every load balancer, the number of slots
// of each entry matches its weight to within one turn, and a change moves few slots beyond the necessary ones.
//
//	table := maglev.Build([]maglev.Entry{{"a", 1}, {"b", 2}}, maglev.DefaultSize)
//	owner := table[hash%uint64(len(table))] // an index into the entries
package maglev
