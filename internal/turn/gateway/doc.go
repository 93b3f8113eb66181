// Package gateway is a TURN server (RFC 8656, RFC 6062): it carries datagrams between clients behind firewalls and
// their peers.
//
// It hides the sockets, the workers and how packets are batched through the kernel. What a request means is package
// allocation's affair, which peers may be reached that of package routes.
//
//	client ─► reuse-port socket ─► worker: Table (allocation), one goroutine per core ─► relay socket ─► peer
//	client ◄─ same socket       ◄─ queue of the turn, sent in gathered segments       ◄─ relay socket ◄─ peer
//	client ◄═ TCP, TLS, DTLS ═► goroutines of the connection ◄─ batches, post ─► worker of the client's address
//
// A worker's turn: wait, read each ready socket once (recvmmsg, UDP_GRO), queue what it read on the sockets that it
// leaves through, send each queue (sendmmsg, UDP_SEGMENT; the vectors point into the read buffers). Nothing is copied
// but indications, no lock is taken, no clock read and nothing allocated per packet. Every packet that goes no further
// is counted by one Reason.
//
// A UDP client belongs to the worker that udpio.PeerSocket names: the sockets of a listener carry a program that gives
// it the client's datagrams. So allocations that a Store or Import restores, in another process or with another number
// of workers, are where the kernel sends their packets. The hash has no secret: whoever chooses many source addresses
// can load one worker more than others.
//
// Limits: relay ports are those of the listener's range on each relay address; at most 4096 packets wait in a turn and
// none longer; what the kernel refuses is dropped (send_refused). Clients over TCP, TLS and DTLS do not outlive the
// process. A listener at :: serves both families.
//
//	g, err := gateway.Open(config, gateway.Options{Log: slog.Default()})
//	err = g.Run(ctx)
package gateway
