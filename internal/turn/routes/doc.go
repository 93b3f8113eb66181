// Package routes decides whether a client of a listener may reach a peer, and through which cluster.
//
//	listener ── routes ──► cluster ── endpoints ──► prefix, port range, transport
//	                                  names ──► addresses (looked up periodically)
//
// A Spec is compiled to an immutable Table; Table.Admit is called per permission and per packet and allocates nothing.
// A Router holds the current Table: it looks names up, retains the last valid addresses of a name whose look-up fails, and
// re-reads the host's own addresses periodically.
//
// Of all endpoints that contain a peer, the longest prefix wins, then the cluster that the listener names first. A peer that no
// endpoint contains is refused. In addition, these are refused however wide the endpoints are, because a client that reaches
// them is inside the gateway's host or network (the relay would bypass every firewall):
//
//	0.0.0.0/8 ::                           unspecified
//	127.0.0.0/8 ::1                        loopback
//	169.254.0.0/16 fe80::/10               link-local (cloud metadata services live there)
//	64:ff9b::/96 with one of these embedded   a NAT64 would translate to it (RFC 6052)
//	224.0.0.0/4 ff00::/8                   multicast
//	255.255.255.255                        broadcast
//	the host's own addresses               Own, and what Spec.Own adds
//
// An endpoint that lies within one of these ranges allows what it contains: 127.0.0.1:5000 does, 0.0.0.0/0 does not. One of the host's own
// addresses is allowed by an endpoint of that single address. A name never allows any of them, because otherwise the owner of the name's zone
// could reach the gateway's host.
//
//	table := routes.Compile(spec, nil)
//	cluster, ok := table.Admit(listener, false, peer)
//
// Limits: MaxEndpoints in total, MaxNames, MaxAddresses per name; further addresses of a name are dropped and counted.
package routes
