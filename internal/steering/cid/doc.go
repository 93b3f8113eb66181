// Package cid knows where a connection id sits in a datagram and where the owner id sits in a connection id.
//
// A connection id (CID) survives a change of the client's address; a 5-tuple does not. A balancer that steers by CID
// therefore keeps a session on its server. The owner id in the CID is the number of the node, or of the shard, that holds
// the session.
//
//	DTLS 1.2   25 │ fe fd │ epoch 2 │ seq 6 │ CID │ length 2 │ …        RFC 9146 section 4
//	DTLS 1.3   001CSLEE │ CID │ seq 1-2 │ [length 2] │ …                RFC 9147 section 4
//	QUIC       1… │ version 4 │ n │ CID (n) │ …                         RFC 9000 section 17.2
//	QUIC       0… │ CID │ …                                             RFC 9000 section 17.3, RFC 9287
//
//	CID        │rotation│ … │ owner id │ … │ random │                   Layout
//
// CIDs of DTLS and of QUIC's short header carry no length. Therefore all CIDs of one port have the same length, or every
// layout of the port has rotation bits at the same position (Set). Types 60 to 63 of a Californium management port lie
// inside DTLS 1.3's range; that port must not be steered with DTLS13.
//
// Encrypted QUIC-LB is not implemented; MaskSipHash hides node ids instead. RFC 9146 has no rotation: give CIDs one or two
// rotation bits from the start, so that keys and layouts can change later.
//
//	layout := cid.ByteOwner(6)
//	id := make([]byte, layout.Length)
//	err := layout.New(id, 3, rand.Reader)
//	owner, ok := layout.Owner(id) // 3, true
//
// Nothing here allocates, keeps state or can be made to panic by a datagram.
package cid
