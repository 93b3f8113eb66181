// Package bgp announces prefixes to routers by BGP, with the library GoBGP. It is the only package that knows GoBGP, which runs only while a
// configuration has neighbours.
//
//	announce.Route ─► Speaker.Apply ─► paths of GoBGP ─► UPDATE to each neighbour
//	                                ◄─ read back: a path that a policy dropped is reported
//	                  sessions: state, since when, why the last one ended; not established for report_after: a problem
//
// What neighbours send is not used: the import policy accepts local paths and rejects all others, and a limit of prefixes bounds what is
// remembered of them. A closed session, also that of a killed process, withdraws everything (RFC 4271, section 9).
//
// BGP-4 is RFC 4271, IPv6 RFC 4760, TCP MD5 RFC 2385, TTL security RFC 5082, graceful shutdown RFC 8326, BFD RFC 5880 and RFC 5881.
package bgp
