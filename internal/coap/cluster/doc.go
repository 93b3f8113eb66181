// Package cluster lets several CoAP/DTLS nodes share sessions by connection id: the node that receives a record of another
// node's session wraps it and sends it to the owner, and the owner's records return through the same node (or directly).
//
// The wire format is the one of Eclipse Californium's built-in CID cluster, byte for byte, so that mixed clusters work.
// It travels on a UDP port of its own, the management port:
//
//	frame      63 in, 62 out                       ping       61 ping, 60 pong
//	+------+-----------+-----+---------+----------+ +------+------------+-------+
//	| type | port (LE) | n   | address | datagram | | type | node (LE)  | state |
//	| 1    | 2         | 1   | 4 or 16 | >= 26    | | 1    | 4          | 0 or 1|
//	+------+-----------+-----+---------+----------+ +------+------------+-------+
//
// Port and address are the client's: in an "in" frame where the datagram came from, in an "out" frame where it has to go.
// With a MAC, 8 bytes follow the address. On a secured link pings are DTLS application data. Package link has the sessions and keys,
// package membership decides which nodes there are; Cluster ties both to the workers of an engine, which read an immutable view of
// them for each datagram.
//
// Differences from the original, on purpose: frames and pings from addresses that are no node are refused and
// counted (the original is an open reflector: anyone may have it emit bytes from its public port), an "in" frame is
// never forwarded again, and node liveness is known with static membership too. A node that never answered a ping is
// "unknown", not dead, because Californium's static mode does not answer.
//
// Limits: 256 node ids with the seed's one-byte layout, [MaxNodes] nodes, datagrams up to [MaxFrame] bytes.
package cluster
