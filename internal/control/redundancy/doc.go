// Package redundancy gives the state of translated flows to other balancers, so that the flows live on there when this one ends, and takes
// theirs. The tables of the data path are the source: what is sent is what a pass over them finds.
//
//	Table.FollowFlows ─► sender ─► TLS over TCP ─► receiver ─► Table.EnterFlows, EndFlow
//	  every 100 to 500 ms           frames  ◄─ acknowledgements
//
// Each balancer connects to each peer, and sends its own state over that connection: first all of it, then the mark bulk_end, then what
// changes. After a lost connection all of it is sent again. TCP keeps the order of what is told of a flow; what was sent and not
// acknowledged when a connection ends is counted as lost, until it is sent again.
//
// # Frames
//
// A frame is its length (4 bytes, without itself), its type (1 byte) and its body. Numbers are big-endian, addresses 16 bytes with IPv4
// mapped.
//
//	hello     version 1, instance 8              both ways, first
//	backend   number 2, address 16, port 2, service and name, each with its length 1 before it
//	flows     sequence 8, then records of 70 bytes: number 4, backend 2, protocol 1, progress 1, left 8 (ms, all ones: never),
//	          client, VIP and source, each address 16 and port 2; source :: where the backend sees the client
//	ended     sequence 8, then numbers of 4 bytes
//	bulk_end  sequence 8
//	alive     sequence 8                         when nothing has changed
//	ack       sequence 8, refused 8              from the receiver, for each frame with a sequence number
//
// A number names a flow on its connection. A record with the number of another flow ends that one.
//
// # Authentication
//
// TLS 1.3 (RFC 8446) with certificates on both sides, whose one Ed25519 key is derived from the shared key by HKDF (RFC 5869). Each side
// accepts the public key of that pair alone. So who does not have the shared key gets no further than the handshake, records cannot be
// repeated or reordered, and what was recorded stays secret if the key is lost later. As the public key can be tested against guessed keys,
// the shared key is 32 random bytes, never a password.
//
// # Bounds
//
// Connections are accepted from the addresses of peers alone, one of each in a handshake at a time, and handshakes have two seconds. Frames
// have at most 64 KiB, a connection at most 65536 backends and as many flows as fit into the table, which keeps its own bound: what is
// given replaces unproven flows of a full table, never proven ones.
package redundancy
