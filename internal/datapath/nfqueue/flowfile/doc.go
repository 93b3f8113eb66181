// Package flowfile is a file of conntrack entries in shared memory, which outlives the process that writes it.
//
//	header (4096 bytes) │ records of worker 0 │ records of worker 1 │ …
//
// A record is 64 bytes, little endian, at the number of its entry:
//
//	check 8 │ backend 8 │ expiry 8 │ source 16 │ destination 16 │ source port 2 │ destination port 2 │ protocol 1 │ state 1 │ flags 1 │ zero 1
//
// check is zero while there is no entry or it is being written, else a hash of the rest, which is written last: a process that is killed in the
// middle of a write leaves a record that is not taken. Writing is a store into mapped memory, without a system call: after kill -9 all that
// the process had decided is there. The header has a version, the id of the boot (expiry is by its monotonic clock) and the network
// namespace: a file of another one is not used.
//
// Open reads what the last process left, and makes a new file in the same place, which takes that place when Commit is called: a process
// that is killed in between leaves the old one. The file is locked while a process writes it.
//
// Bounds: MaxRecords records of all workers. Memory is reserved (fallocate) 1,024 records at a time: where there is no more, further entries are not
// kept, and counted (Unkept). Its directory should be in memory, such as /run; on a disk the kernel writes it out now and then.
package flowfile
