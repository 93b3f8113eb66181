// Package rules makes the iptables rules, routing rules and routes that the NFQUEUE data path needs around it:
//
//	mangle PREROUTING [-i eth0] ─► chain WEIR: -d VIP … NFQUEUE --queue-balance 0:3 [--queue-bypass]
//	                                   weir answers with mark N
//	ip rule: fwmark N ─► table N: default via the backend's address           N a backend's mark
//	filter FORWARD, INPUT ─► chain WEIR: mark R … REJECT                      R a mark for packets that no one takes
//
// [Make] turns a compiled configuration into a [Plan], without touching anything; Plan.Commands is the same as shell
// commands. [Apply] makes the machine's state that of the plan and changes only what differs, [Remove] takes everything
// of ours away, and [Inspect] reports what is missing.
//
// # What is ours
//
// A chain is ours if all its rules carry a comment that begins with "weir"; the chain's name is Config.Chain. A routing
// rule or a route is ours if its protocol number is Config.Protocol. Everything else is somebody else's: never changed,
// and where it is in the way, named in the error.
//
// # Whole packets only
//
// Later fragments have no ports, and an ICMP error has those of another packet. So queue rules match addresses alone;
// ports appear only where one address has services that fail open and others that do not.
//
// # All or nothing
//
// Apply makes before it breaks: routes, then routing rules, then chains (each table in one atomic iptables-restore), and
// deletes last. After an error it takes back what it did, in reverse.
//
// Limits: needs the programs iptables, iptables-save, iptables-restore (and ip6tables…) of either backend, and
// CAP_NET_ADMIN, in the namespace that the calling thread is in. Not for concurrent use with other writers of the same
// chains: two Applies at one time may undo each other.
package rules
