// Package decap is the backend's end of L3-DSR: a program that takes the tunnel
// off, so that a backend needs no tunnel device (which some kernels do not have).
//
//	balancer ── IP-in-IP or GUE ──► eth0 [XDP or TCX: outer header off] ──► stack, VIP on lo
//	                                  │ counters by outcome
//
// Opened are IPv4 and IPv6 in either (RFC 2003, RFC 2473, RFC 4213) and in UDP
// port 6080 (GUE variant 1), to an address of this machine and from a source
// that is allowed: whoever may send through the tunnel can pose as any client.
// A packet from elsewhere is dropped, what is no tunnel passes as it came. ECN
// of both headers is combined as RFC 6040 asks.
//
// Limits: an outer fragment is passed to the stack (the balancer sends none:
// it answers with packet too big); GUE's UDP checksum is not verified, the
// inner packet has its own. Little-endian 64-bit targets; TCX from Linux 6.6.
//
//	d, err := decap.Open(decap.Config{Interface: "eth0", From: prefixes})
//	defer d.Close()
//	counts, err := d.Counters() // counts["ipip"].Packets
package decap
