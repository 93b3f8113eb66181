// Package ebpf is the kernel data path: it carries packets as package steer
// decides, inside the kernel, on the XDP and TCX hooks.
//
//	NIC, veth ─► weir_xdp or weir_tcx (bpf/core.h)
//	               parse ─► VIP? ─► fragment, CID, conntrack, Maglev ─► rewrite or tunnel ─► redirect
//	                 │        no: a reply that is translated, else pass
//	                 ▼
//	               maps ◄── Apply (snapshots) · nexthop (netlink) · sweep, reclaim, held fragments (Run)
//
// The packages below hold what needs no data path: bpf (programs and what is
// generated from them), maps (tables, numbers, records, counters), pins (what
// outlives a process), attach (hooks, links, namespaces), nexthop, generator.
// This one ties them together: Open, Apply, Run, reports and traces.
//
// One C core (bpf/) is compiled for both hooks. XDP is for packet rate on
// network cards; TCX is for veth, bridges and whatever else hands over large
// segments, which XDP would have cut up. HookAuto chooses and says why.
//
// The conformance corpus of steer and random packets hold the programs to the
// Go engine: same decision, same reason, same bytes.
//
// # State
//
// Flows, replies and fragments are arrays of 64-byte buckets with four slots,
// found by a keyed universal hash; each flow has three buckets. Entries name a
// backend by slot and epoch: a slot that gets another backend gets another
// epoch, so a stale entry is a miss and never a wrong backend. Programs read
// one of two generations of services and VIPs; Apply (apply.go) completes the
// other one and switches by one word. Without user space packets go on by what is in the
// maps; early fragments are then dropped.
//
// # veth
//
// No one needs to turn offloads off. On XDP, checksums that a local sender left
// to the card are finished before a packet is redirected, and the other ends of
// veth pairs are made to poll (GRO on), or named with the command that does it.
//
// # Limits
//
// Little-endian 64-bit machines; Linux 6.6 or newer for TCX. TCP, UDP and their
// ICMP, no SCTP; no masked CIDs; mode mark on TCX only, for on XDP there is no
// skb to mark. 24 distinct VIP prefix lengths, 64 port ranges of one prefix and
// protocol, 65,535 backends in all, limits.flows up to 8,388,608. Table sizes
// are those of the first snapshot. IPv4 packets that are too big and may be
// fragmented are dropped with an ICMP error all the same.
//
//	d, err := ebpf.Open(ebpf.Config{Interfaces: []string{"eth0"}})
//	err = d.Apply(snapshot)
//	err = d.Run(ctx)
package ebpf
