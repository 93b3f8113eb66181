// Package flow names a flow, hashes it and remembers things about it for a
// while.
//
// A [Key] is the 5-tuple of a packet with 16-byte addresses, so IPv4
// (as ::ffff:a.b.c.d, RFC 4291 section 2.5.5.2) and IPv6 take one code path.
// [HashKey] hashes a Key with SipHash-2-4: without the key no one can choose
// flows that share a hash. The bytes that enter the hash are, in this order and
// in network byte order (the eBPF data path hashes the same 40 bytes):
//
//	 0       16      32     34     36    37   40
//	+-------+-------+------+------+-----+----+
//	|  src  |  dst  | sport| dport|proto| 0  |
//	+-------+-------+------+------+-----+----+
//
// [HashKey.Source] hashes the same form with everything but src zero.
//
// [Table] is a bounded map whose entries expire, and [Fragments] remembers, on
// two of them, what was decided for a datagram whose later fragments carry no
// ports. Time is the caller's: any monotonic offset that does not go back. No
// type here is for concurrent use.
//
//	k := flow.NewKey(client, vip, flow.ProtoUDP)
//	slot := hashKey.Flow(k) % uint64(len(maglevTable))
package flow
