package allocation

import "fmt"

// Reason is how a message, packet or allocation ended. Every path ends with exactly one Reason, and the gateway
// counts each per listener. Code returns the STUN error code of the answer, if there was one.
type Reason uint8

// The reasons. Those with a code were answered with it (unless the rate limit or the size rule suppressed the answer; these
// have Reasons of their own); the others were dropped without an answer, or say why an allocation is gone. The comments are
// docs/reasons.md: what happened, and after "Remedy:" what an operator can do.
const (
	// OK: done; for Connect: in progress.
	OK Reason = iota
	// TryAlternate: 300: the gateway drains, and names another server.
	TryAlternate
	// BadRequest: 400: the request is not as its method wants it. Remedy: none; the client is broken.
	BadRequest
	// Challenged: 401 with a nonce: no credentials yet. Every session begins so.
	Challenged
	// Unauthorized: 401: unknown user, wrong realm or wrong integrity. Remedy: compare user and password with `auth`.
	Unauthorized
	// CredentialExpired: 401: the time in the ephemeral user name is over. Remedy: the service that hands out credentials gives them a longer time; compare the clocks.
	CredentialExpired
	// Forbidden: 403: a peer that no route admits, or one refused by default. Remedy: `routes` of the listener, and an endpoint that names the peer.
	Forbidden
	// UnknownAttribute: 420: an attribute that must be understood is unknown.
	UnknownAttribute
	// NoAllocation: 437: the request needs an allocation, and there is none. Remedy: none; clients whose allocation ended do this.
	NoAllocation
	// AllocationExists: 437: the client has an allocation already.
	AllocationExists
	// StaleNonce: 438: the nonce is too old; the client continues with the new one. Remedy: none; it happens once each `lifetimes.nonce`.
	StaleNonce
	// FamilyUnsupported: 440: there is no relay address of that family. Remedy: `relay` with an address of that family.
	FamilyUnsupported
	// WrongCredentials: 441: not the user who made the allocation.
	WrongCredentials
	// TransportUnsupported: 442: a relay transport that is not served. Remedy: for TCP, a cluster with `protocol: tcp`.
	TransportUnsupported
	// FamilyMismatch: 443: the family of the peer is not that of the relay address.
	FamilyMismatch
	// ConnectionExists: 446: there is a connection to that peer already (RFC 6062).
	ConnectionExists
	// ConnectionFailed: 447: the peer cannot be reached over TCP (RFC 6062). Remedy: look at the peer and at the route to it.
	ConnectionFailed
	// QuotaReached: 486: the user has as many allocations as allowed. Remedy: raise `quotas.allocations_per_user`.
	QuotaReached
	// InsufficientCapacity: 508: no port, no such reservation, or a table is full. Remedy: a wider `relay_ports`, `ulimit -n`, or larger `quotas`.
	InsufficientCapacity
	// Draining: 508: the gateway drains and accepts no new allocations. Remedy: `drain.alternate` names another one.
	Draining
	// Malformed: not a STUN message or ChannelData of the right form. Remedy: none; if there are many, something else talks to this port.
	Malformed
	// NoCookie: a message of RFC 3489, without the magic cookie. Remedy: none; the client is too old.
	NoCookie
	// BadFingerprint: FINGERPRINT is wrong.
	BadFingerprint
	// Unexpected: a response, an indication or a method that no client sends.
	Unexpected
	// RateLimited: unanswered: a limit of requests without valid credentials was reached. Remedy: `limits`; `weir_turn_answers_withheld_total` says which one.
	RateLimited
	// Amplifies: unanswered: the answer would be larger than three times the request.
	Amplifies
	// NoPermission: the client has no permission for this peer, or no longer. Remedy: none; data that comes after the end of a call does this.
	NoPermission
	// NoChannel: the channel is not bound, or no longer. Remedy: none; see `no_permission`.
	NoChannel
	// Suspended: the route to the peer is missing at present, or for good. Remedy: look at the endpoints of the cluster and at DNS.
	Suspended
	// Bandwidth: more bytes per second than the allocation may send. Remedy: raise `quotas.bandwidth`.
	Bandwidth
	// Expired: the allocation ended: its client did not refresh it. Remedy: none; clients that vanish do this.
	Expired
	// Deleted: the allocation ended: its client deleted it.
	Deleted
	// Disconnected: the allocation ended: the client's TCP or TLS connection ended.
	Disconnected
	// Revoked: the allocation ended: a new configuration does not allow it, or its listener is gone.
	Revoked
	// Stopped: the allocation ended: the gateway ended, or drained it.
	Stopped
	// Moved: the allocation ended here: it was exported to another process.
	Moved

	// ReasonCount is how many there are.
	ReasonCount
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
