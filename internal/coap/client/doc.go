// Package client holds the CoAP clients: [Get], one request over UDP or DTLS, shown as the cf-client of the source
// document shows it, and [Bench], a closed-loop load of thousands of clients.
//
// Get uses pion/dtls and so checks the server with a foreign implementation. It follows blocks and the demand for an Echo
// option. Bench has a DTLS client of its own (PSK,
// connection id) because a load generator must not cost more than the server: one worker per core, no goroutine, no timer
// and no allocation per client, batched system calls.
//
//	worker ─ epoll ─┬─ socket of client 0 ─ session: handshake │ records │ one request in flight, RFC 7252 back-off
//	                ├─ socket of client 1 ─ ...
//	                └─ timer heap: retransmission, rebind, end
//
// With SocketsEach every client has a source port, as devices behind a balancer have; with SocketsShared the clients of
// a worker share a few sockets and are distinguished by the connection id that each of them chose (by token without DTLS).
//
// Bench answers return routability checks (RFC 9853) and pings. Of an answer in blocks it takes the first one.
//
// What Bench counts: a request is "lost" when it got no answer within all its retransmissions (RFC 7252 section 4.2); a
// session is "lost" when the client had to give it up; a "re-handshake" is every handshake of a client after its first.
package client
