// Package allocation is the state machine of a TURN server: STUN requests and packets in, answers and effects out. It
// has no socket, clock, goroutine or log; the gateway gives it bytes and the time and does what Relays and Events say.
//
//	client ──STUN──► Request ──► answer          peer ──UDP──► Inbound ──► channel or Data indication
//	       ──STUN──► Send ─────► peer, payload                             or a Reason to drop it
//	       ──0x4…──► Find, ParseChannelData, Channel ──► peer, payload
//
//	Shared  (one)         Policy, quotas, rate limits, reserved ports: what all workers have in common
//	└ Table (per worker)  Path (5-tuple) ──► Allocation
//	  └ Allocation        relay addresses, permissions (by IP address), channels (by number and by peer), connections
//
// It hides the message format, authentication, nonces, error codes and lifetimes. It implements RFC 8656 (TURN, both
// address families, ADDITIONAL-ADDRESS-FAMILY, EVEN-PORT with RESERVATION-TOKEN), RFC 6062 (TCP relays), RFC 8489 (STUN,
// long-term credentials with SHA-1, and with SHA-256 if Policy enables it), and the credentials of the TURN REST draft.
//
// A Table belongs to one goroutine; all goroutines may use Shared. now is always in nanoseconds of the same clock, which no one
// can set, and addresses are never IPv4-mapped IPv6. Entries expire in calls of Expire: call it at the time that it returned.
//
// Limits, each with a Reason when it is reached: allocations per user and in total, permissions, channels and connections
// per allocation, bytes per second, answers to requests without credentials per source prefix and in total. Over UDP an
// answer to a request without valid credentials is never larger than three times the request. Mobility (RFC 8016), ICMP
// attributes, USERHASH and RFC 3489 (no magic cookie) are not supported.
//
//	shared, err := allocation.NewShared(policy, seed)
//	table := allocation.NewTable(shared, relays, events)
//	answer, reason := table.Request(path, message, nil, now)
package allocation
