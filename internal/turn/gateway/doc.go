// Package gateway is a TURN server (RFC 8656, RFC 6062): it carries datagrams between clients behind firewalls and
// their peers.
//
// It hides the sockets, the workers and how packets are batched through the kernel. Package allocation decides what a
// request means, package routes which peers may be reached.
//
//	client ─► reuse-port socket ─► worker: Table (allocation), one goroutine per core ─► relay socket ─► peer
//	client ◄─ same socket       ◄─ queue of the poll, sent in gathered segments       ◄─ relay socket ◄─ peer
//	client ◄═ TCP, TLS ═══════► worker of the client's address: the same poller, one read and one write a poll
//	client ◄═ DTLS ═══════════► worker's socket, opened and sealed by the DTLS engine of the worker ◄─► relay sockets
//
// A worker repeats one poll: it waits, reads each ready socket once (recvmmsg, UDP_GRO), queues the packets on the sockets that
// send them, and sends each queue (sendmmsg, UDP_SEGMENT; the vectors point into the read buffers). Only indications are
// copied; per packet no lock is taken, no clock is read and nothing is allocated. Every packet that is not relayed
// is counted by one Reason.
//
// A UDP client belongs to the worker that udpio.PeerSocket returns: the sockets of a listener have a BPF program that steers
// the client's datagrams to it. So allocations that a Store or Import restores, in another process or with another number
// of workers, are at the worker that receives their packets. The hash has no secret: a client that chooses many source
// addresses can load one worker more than others.
//
// Limits: relay ports are those of the listener's range on each relay address; at most 4096 packets are queued in a poll,
// and none stays queued after it; what the kernel refuses is dropped (send_refused). Clients over TCP, TLS and DTLS do not outlive the
// process. A listener at :: serves both families.
//
//	g, err := gateway.Open(config, gateway.Options{Log: slog.Default()})
//	err = g.Run(ctx)
package gateway
