// Package client holds the CoAP clients. [Dial] makes a [Conn], a connection to one server over UDP, DTLS, TCP or TLS: requests
// ([Conn.Do]), with payloads and responses in blocks (RFC 7959), Request-Tag and Echo (RFC 9175) and No-Response (RFC 7967),
// observation ([Conn.Observe], RFC 7641) and pings. [Do] is one request on a connection of its own, shown as the cf-client of the
// source document shows it. [Receive] is the receive test, with its state in a [Ledger]. [Bench] is a closed-loop load of
// thousands of clients.
//
//	caller ─ Do, Observe, Ping ─► exchange.Endpoint ─ link ─┬─ UDP socket
//	goroutine of the Conn: reads, repeats ──────┘           ├─ secureLink: DTLS session over it
//	                                                        └─ streamLink: TCP or TLS, its messages as non-confirmable datagrams
//
// The DTLS client is Weir's own: [Security] has its keys, certificates, raw public keys and connection ids. Errors name the cause
// of a failed handshake. When a server has lost the session of a Conn, it makes another one (see renewal.go). Bounds: 4,096 requests of a Conn at a time, bodies of 16 MiB, 64 notifications that wait for delivery.
//
// Bench drives the handshakes and records of its clients itself, because a load generator must not cost more than the server: one
// worker per core, no goroutine, no timer and no allocation per client, batched system calls.
//
//	worker ─ epoll ─┬─ socket of client 0 ─ session: handshake │ records │ one request in flight, RFC 7252 back-off
//	                ├─ socket of client 1 ─ ...
//	                └─ timer heap: retransmission, rebind, end
//
// With SocketsEach every client has a source port, as devices behind a balancer have; with SocketsShared the clients of
// a worker share a few sockets and are distinguished by the connection id that each of them chose (by token without DTLS).
//
// Bench answers return routability checks (RFC 9853) and pings. Without a block size, of an answer in blocks it takes the first one.
//
// What Bench counts: a request is "lost" when it got no answer within all its retransmissions (RFC 7252 section 4.2); a
// session is "lost" when the client had to give it up; a "re-handshake" is every handshake of a client after its first.
package client
