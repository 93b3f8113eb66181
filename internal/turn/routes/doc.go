// Package routes answers one question: may a client of this listener reach that peer, and through which cluster?
//
//	listener ── routes ──► cluster ── endpoints ──► prefix, port range, transport
//	                                  names ──► addresses (looked up again and again)
//
// A Spec is compiled to an immutable Table; Table.Admit is called per permission and per packet and allocates nothing.
// A Router keeps the current Table: it looks names up, keeps the last good addresses of a name whose look-up fails, and
// reads the host's own addresses anew.
//
// Of all endpoints that hold a peer the longest prefix wins, then the cluster that the listener names first. What no
// endpoint holds is refused. Beyond that, these are refused however wide the endpoints are, because a client that gets
// there is inside the gateway's host or network (the relay would be a way around every firewall):
//
//	0.0.0.0/8 ::                           unspecified
//	127.0.0.0/8 ::1                        loopback
//	169.254.0.0/16 fe80::/10               link-local (cloud metadata services live there)
//	64:ff9b::/96 with one of these behind it  a NAT64 would bring it there (RFC 6052)
//	224.0.0.0/4 ff00::/8                   multicast
//	255.255.255.255                        broadcast
//	the host's own addresses               Own, and what Spec.Own adds
//
// An endpoint that lies within one of these ranges opens what it holds: 127.0.0.1:5000 does, 0.0.0.0/0 does not. An own
// address is opened by an endpoint of that single address. A name never opens any of them: who owns the name's zone
// would own the gateway's host.
//
//	table := routes.Compile(spec, nil)
//	cluster, ok := table.Admit(listener, false, peer)
//
// Limits: MaxEndpoints in all, MaxNames, MaxAddresses per name; more of a name's addresses are dropped and counted.
package routes
