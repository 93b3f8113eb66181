package allocation

import "fmt"

// Reason is how a message, packet or allocation ended. Every path ends with exactly one Reason, and the gateway
// counts each per listener. Code returns the STUN error code of the answer, if there was one.
type Reason uint8

// The reasons. Those with a code were answered with it (unless the rate limit or the size rule suppressed the answer; these
// have Reasons of their own); the others were dropped without an answer, or say why an allocation is gone.
const (
	OK                   Reason = iota // done; for Connect: in progress
	TryAlternate                       // 300: draining, another server is named
	BadRequest                         // 400
	Challenged                         // 401: no credentials yet; every session begins like this
	Unauthorized                       // 401: unknown user, wrong realm or bad integrity
	CredentialExpired                  // 401: the ephemeral user name has expired
	Forbidden                          // 403: the peer is not admitted
	UnknownAttribute                   // 420
	NoAllocation                       // 437: the request needs an allocation
	AllocationExists                   // 437: there is one already
	StaleNonce                         // 438
	FamilyUnsupported                  // 440
	WrongCredentials                   // 441: not the user who made the allocation
	TransportUnsupported               // 442
	FamilyMismatch                     // 443
	ConnectionExists                   // 446 (RFC 6062)
	ConnectionFailed                   // 447 (RFC 6062)
	QuotaReached                       // 486
	InsufficientCapacity               // 508: no port, no such reservation, or a table of the allocation is full
	Draining                           // 508: the server accepts no new allocations
	Malformed                          // not a STUN message or ChannelData of the right form
	NoCookie                           // RFC 3489 without magic cookie
	BadFingerprint                     // FINGERPRINT is wrong
	Unexpected                         // a response, an indication or a method that no client sends
	RateLimited                        // too many requests without credentials
	Amplifies                          // the answer would be larger than three times the request
	NoPermission                       // no permission for this peer
	NoChannel                          // the channel is not bound
	Suspended                          // the peer was admitted, but currently is not
	Bandwidth                          // over the allocation's bytes per second
	Expired                            // the lifetime has ended
	Deleted                            // by its client: Refresh with lifetime 0
	Disconnected                       // the client's TCP or TLS connection ended
	Revoked                            // by a new policy, or the listener is gone
	Stopped                            // the gateway ends, or drained it
	Moved                              // exported to another process
	ReasonCount                        // how many there are
)

type reasonText struct {
	name   string
	code   int
	phrase string // of the error answer (RFC 8489, section 14.8)
}

func (r Reason) text() reasonText {
	switch r {
	case OK:
		return reasonText{"ok", 0, ""}
	case TryAlternate:
		return reasonText{"try_alternate", 300, "Try Alternate"}
	case BadRequest:
		return reasonText{"bad_request", 400, "Bad Request"}
	case Challenged:
		return reasonText{"challenged", 401, "Unauthenticated"}
	case Unauthorized:
		return reasonText{"unauthorized", 401, "Unauthenticated"}
	case CredentialExpired:
		return reasonText{"credential_expired", 401, "Unauthenticated"}
	case Forbidden:
		return reasonText{"forbidden", 403, "Forbidden"}
	case UnknownAttribute:
		return reasonText{"unknown_attribute", 420, "Unknown Attribute"}
	case NoAllocation:
		return reasonText{"no_allocation", 437, "Allocation Mismatch"}
	case AllocationExists:
		return reasonText{"allocation_exists", 437, "Allocation Mismatch"}
	case StaleNonce:
		return reasonText{"stale_nonce", 438, "Stale Nonce"}
	case FamilyUnsupported:
		return reasonText{"family_unsupported", 440, "Address Family not Supported"}
	case WrongCredentials:
		return reasonText{"wrong_credentials", 441, "Wrong Credentials"}
	case TransportUnsupported:
		return reasonText{"transport_unsupported", 442, "Unsupported Transport Protocol"}
	case FamilyMismatch:
		return reasonText{"family_mismatch", 443, "Peer Address Family Mismatch"}
	case ConnectionExists:
		return reasonText{"connection_exists", 446, "Connection Already Exists"}
	case ConnectionFailed:
		return reasonText{"connection_failed", 447, "Connection Timeout or Failure"}
	case QuotaReached:
		return reasonText{"quota_reached", 486, "Allocation Quota Reached"}
	case InsufficientCapacity:
		return reasonText{"insufficient_capacity", 508, "Insufficient Capacity"}
	case Draining:
		return reasonText{"draining", 508, "Insufficient Capacity"}
	default:
		return r.dropped()
	}
}

func (r Reason) dropped() reasonText {
	names := [...]string{
		"malformed", "no_cookie", "bad_fingerprint", "unexpected", "rate_limited", "amplifies", "no_permission",
		"no_channel", "suspended", "bandwidth", "expired", "deleted", "disconnected", "revoked", "stopped", "moved",
	}
	if i := int(r) - int(Malformed); i >= 0 && i < len(names) {
		return reasonText{name: names[i]}
	}
	return reasonText{name: fmt.Sprintf("reason(%d)", uint8(r))}
}

// String is the reason's name in snake_case, as in metrics and JSON.
func (r Reason) String() string { return r.text().name }

// Code is the STUN error code of the answer, 0 if none.
func (r Reason) Code() int { return r.text().code }

// MarshalText writes String.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
