// Package snatlab builds the paths of snat's scenarios out of network namespaces, offers them more connections than
// they hold, and counts: the planner's prediction against the kernel's own NAT, and against Weir's.
//
//	node0 ─┐                                    a replica: source addresses of its own and tcpscale workers, in its
//	node1 ─┼─ cloud ─ (server node) ─ server    node's namespace
//	…     ─┘
//
//	stage                                 where it is built
//	ephemeral                             the node's port range, the replica's addresses
//	masquerade                            node: nft masquerade
//	azure-lb, gcp-nat (static)            cloud: nft, a block of ports for each node
//	azure-nat, aws-nat                    cloud: nft, snat to one of its addresses, by chance
//	dnat-lb                               cloud: nft dnat
//	masquerade-lb                         server node: nft dnat and masquerade
//
// With Weir's NAT, `weir lb run --datapath ebpf` takes the place of the last translator of sources in the path, with the
// same addresses and ports; the translators before it stay the kernel's. A block for each node is a service for each node,
// with a VIP of its own, as Weir's sources belong to services. Only what a cloud's customer or its documents would set is
// taken from the plan (ports of a node, of an address); how many connections that comes to is counted, on both ends.
//
// A count is final when nothing has changed while everything refused was tried once again, with SYN retries. The
// plan decides only how long to wait: a count below it is given more time.
//
// Scenarios run side by side up to 200,000 connections, each in namespaces of its own.
//
// Limits: Linux, root, nft. Stages without a translator (files, conntrack, memory …) are not built; a scenario that they
// bound is not run, nor one of more connections than conntrack holds.
package snatlab
