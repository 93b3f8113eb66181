// Package node is the CoAP server: resources over plain UDP and over DTLS with connection ids, each listener an
// [engine.Engine] whose workers share nothing, and over TCP and TLS, each listener a [streamserver.Server].
//
//	engine worker ─► handler ─► exchange.Endpoint ─► resource by path ─► reply, sealed and sent by the worker
//	                 one per worker: no lock, no goroutine per request, no allocation for /benchmark
//
//	/                    what this is                /.well-known/core   links, with the filter of RFC 6690
//	/context /mycontext  how the server sees you     /myip               your address
//	/benchmark           POST, GET; ?rlen=n, ?ack    /separate           empty ACK, the response after a second
//	/requests            receive test                /echo               POST, kept on demand
//	/reverse-request     requests to the client      /reverse-observe    observation of the client
//	/diagnose            counters, if Config.Diagnose
//
// The context, myip and benchmark resources have the fields, formats and queries of Californium's extended plugtest server, so
// that its clients and scripts work. A query that a resource does not know is 4.02, as there.
//
// Bounds: sessions and half-open handshakes by the engine; 65,536 pending separate responses, 32 of one peer, and 16 MiB of
// stored answers per worker by package exchange; responses of 1024 bytes a datagram.
//
// Observations at clients: 4 of one session, 16,384 in all; see maxWatched.
//
// What all resources share is in package resource: conditions, bodies in blocks both ways, observation. block_size is the
// longest payload that is sent in one message.
//
// An address may be forged (RFC 7252 section 11.3). One that has not proven itself gets no more than the engine's budget, three
// times what came from it: of long bodies the largest block that fits, with a ping whose reset proves the address, or else a
// 4.01 with an Echo option (RFC 9175). See docs/adr/0015.
//
// With Config.Store sockets and DTLS sessions outlive the process: each listener has an arena (package arena) in which a worker's
// stored answers and its sessions' message ids are, too. Leave makes Run end without ending them.
//
// With Config.Multicast a socket for each group and interface passes requests to the first worker of its listener, which answers
// discovery within the leisure (RFC 7252 section 8): see [Multicast].
//
// A process may run several nodes of one cluster: each has an address, a node id in its connection ids, and a management
// address; see package cluster.
package node
