// Package node is the CoAP server: resources over plain UDP and over DTLS with connection ids, each listener an
// [engine.Engine] whose workers share nothing.
//
//	engine worker ─► handler ─► exchange.Endpoint ─► resource by path ─► reply, sealed and sent by the worker
//	                 one per worker: no lock, no goroutine per request, no allocation for /benchmark
//
//	/                    what this is                /.well-known/core   links, with the filter of RFC 6690
//	/context /mycontext  how the server sees you     /myip               your address
//	/benchmark           POST, GET; ?rlen=n, ?ack    /separate           empty ACK, the response after a second
//
// The context, myip and benchmark resources have the fields, formats and queries of Californium's extended plugtest server, so
// that its clients and scripts work. A query that a resource does not know is 4.02, as there.
//
// Bounds: sessions and half-open handshakes by the engine; 65,536 pending separate responses, 32 of one peer, and 16 MiB of
// stored answers per worker by package exchange; responses of 1024 bytes a datagram. Over plain CoAP to public addresses, which
// a forged source may name (RFC 7252 section 11.3), they are of 64 bytes, and separate ones are not repeated. A session whose
// address has changed gets no more than the engine's budget until an acknowledgement of an unguessable message id has proven
// the address.
//
// A process may run several nodes of one cluster: each has an address, a node id in its connection ids, and a management
// address; see package cluster.
package node
