// Package maps is the memory that programs and user space share: the tables of flows, replies and fragments, services,
// backends and VIPs, the counters, and who has which number in them.
//
//	Tables   the maps, those that user space writes in place as memory
//	Numbers  numbers of services and slots of backends; a number returns as late as possible
//	Ranges   parts of the arrays that hold Maglev tables and tables of owner ids
//	VIPs     one generation's index of destinations
//
// Flows, replies and fragments are arrays of 64-byte buckets with four slots, found by a keyed universal hash; each flow has
// three buckets. Entries name a backend by slot and epoch: a slot that gets another backend gets another epoch, so a stale
// entry is a miss and never a wrong backend.
//
// Programs run while user space reads and writes: words that both change are changed by atomic operations, and all others are
// written before the word that names them.
package maps
