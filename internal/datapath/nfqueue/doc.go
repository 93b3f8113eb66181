// Package nfqueue is the data path for places where programs in the kernel cannot go: it answers packets of netfilter
// queues (NFQUEUE) with a verdict and a fwmark, and routing by mark does the rest.
//
//	iptables … -j NFQUEUE --queue-balance 0:3
//	   │ one netlink message per packet, its first bytes only
//	   ▼
//	queue ─► worker (a thread of its own, with its own steer.Engine) ─► verdicts, one send for all of a batch
//	           │ packet.Parse, Engine.Packet                             ACCEPT + mark: to a backend   ACCEPT: not ours
//	           └ held: early fragments, known by number only              DROP: by reason              none: held
//
// Nothing is copied or sent by this package: a packet stays in the kernel's queue until its verdict. That makes holding
// early fragments cheap: the verdict waits, bounded in number and time, until the first fragment shows where the datagram
// goes; then it leaves in the same write as that one's. Large segments (GSO) are taken whole.
//
// # Queues and workers
//
// There is one worker per queue and no lock per packet. iptables' --queue-balance hashes the two addresses of a packet
// (with IPv4 also the protocol), so all fragments of a datagram, and all packets of a flow in both directions, meet in one
// worker. An ICMP error comes from somebody else's address: a worker that does not know the flow it quotes queries the others.
// --queue-cpu-fanout would scatter them: do not use it. Each worker has its part of limits.flows and of new_flow_rate;
// limits.fragments and limits.held_fragments are per queue.
//
// # Limits
//
// Mode mark only. Decisions see the first Config.CopyRange bytes of a packet; checksums of these packets may be unfinished,
// and are neither read nor written. Needs CAP_NET_ADMIN in the namespace of the queues.
//
//	d, err := nfqueue.Open(nfqueue.Config{First: 0, Count: 4})
//	err = d.Apply(snapshot)
//	err = d.Run(ctx)
package nfqueue
