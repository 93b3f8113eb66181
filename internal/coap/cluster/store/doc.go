// Package store holds what the nodes of a cluster agree on: an entry for each process (replica.Entry), which says who its buddy is, or
// who has taken its sessions over.
//
//	Change   create, or change if the term is the expected one: one of two simultaneous changes succeeds
//	Follow   all entries, then each change
//	Delete   an entry that is not needed any more, if the term is the expected one
//
// A term is a revision of the store that is higher than that of every earlier change of any entry. An entry that is read as missing, though
// it has existed, counts as taken by no process: who has its sessions is not known, so they are dropped.
//
// Implementations: [Etcd], which runs elsewhere, and [Memory], for tests and the nodes of one process. Both are linearizable: Change returns
// the entry as it was at one moment between the call and the return.
//
// Any goroutine may call the methods. They block until there is an answer or the context ends: no worker may call them.
package store
