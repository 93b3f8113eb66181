// Package packet reads, builds and rewrites packets, from Ethernet to the
// transport header and the packet that an ICMP error quotes.
//
// [Parse] fills one [Packet] value and copies nothing: offsets point into the
// caller's bytes. It reads IPv4 (RFC 791) with options, IPv6 (RFC 8200) with up
// to eight extension headers, fragments of both, TCP, UDP, SCTP, echo and the
// ICMP errors (RFC 792, RFC 4443) that quote a flow. [ParseFrame] starts at
// Ethernet with up to two VLAN tags (802.1Q, 802.1ad).
//
// Key is always the flow of packets that travel in the same direction as this
// one. An ICMP error travels against the packet it quotes, so its Key is the
// quoted flow reversed:
//
//	client ──► VIP        Key = client > VIP
//	client ──► VIP  ICMP "too big", quotes VIP > client: Key = client > VIP
//
// The Set functions rewrite in place and keep every checksum right by RFC 1624,
// also those inside a quoted packet. A UDP checksum of zero over IPv4 stays
// zero (RFC 768), one that becomes zero is sent as ffff. The SCTP checksum
// covers no address (RFC 9260 section 6.8) and is left alone unless a port changes.
//
// Input is hostile: every length is checked, every walk is bounded, and an
// error is one of the sentinels below. Nothing here allocates except the Append
// functions when their buffer is too small.
package packet
