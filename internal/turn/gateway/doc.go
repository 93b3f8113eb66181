// Package gateway is a TURN server (RFC 8656): it carries datagrams between clients behind firewalls and their peers.
//
// It hides the sockets, the workers and how packets are batched through the kernel. What a request means is package
// allocation's affair.
//
//	client ─► reuse-port socket ─► worker: Table (allocation), one goroutine per core ─► relay socket ─► peer
//	client ◄─ same socket       ◄─ queue of the turn, sent in gathered segments       ◄─ relay socket ◄─ peer
//	client ◄═ TCP, TLS, DTLS ═► goroutines of the connection ◄─ batches, post ─► worker of the client's address
package gateway
