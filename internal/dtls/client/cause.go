package client

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
)

// Error is why there is no session, or none any more. It wraps what it comes from: handshake.ErrNoAnswer or handshake.ErrNoFinished
// of a server that is silent, handshake.AlertError of one that refuses, handshake.UntrustedError where we refuse the server,
// syscall.ECONNREFUSED where nothing listens.
type Error struct {
	Cause string // for people, such as "identity or key refused"
	Err   error
}

// Error implements error.
func (e *Error) Error() string {
	var untrusted handshake.UntrustedError
	switch {
	case errors.As(e.Err, &untrusted):
		return e.Cause + ": " + untrusted.Err.Error()
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return e.Cause + ": " + syscall.ECONNREFUSED.Error()
	}
	return fmt.Sprintf("%s (%v)", e.Cause, e.Err)
}

// Unwrap returns what the error comes from.
func (e *Error) Unwrap() error { return e.Err }

// Explain returns the Error of a handshake that ended with err after so long. Errors whose cause it does not know, it returns as they
// are.
func Explain(err error, after time.Duration) error {
	var alert handshake.AlertError
	var untrusted handshake.UntrustedError
	after = after.Round(10 * time.Millisecond)
	switch {
	case errors.As(err, &untrusted):
		return &Error{"certificate not trusted", err}
	case errors.Is(err, handshake.ErrNoAnswer):
		return &Error{fmt.Sprintf("no answer within %v; is a DTLS server there?", after), err}
	case errors.Is(err, handshake.ErrNoFinished):
		return &Error{fmt.Sprintf("no answer within %v to the keys of this client: some servers refuse an identity, a key or a certificate in silence", after), err}
	case errors.As(err, &alert):
		return &Error{AlertCause(alert), err}
	}
	return Unreachable(err)
}

// Unreachable names the cause of an ICMP error that a socket reports. It returns other errors, and nil, as they are.
func Unreachable(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return &Error{"nothing listens there", err}
	}
	return err
}

// AlertCause is what a server's fatal alert in a handshake means for the user (RFC 5246 section 7.2.2; RFC 4279 section 2).
func AlertCause(alert handshake.AlertError) string {
	switch alert {
	case 20, 51, 115: // bad_record_mac, decrypt_error, unknown_psk_identity
		return "identity or key refused"
	case 40, 71: // handshake_failure, insufficient_security
		return "no cipher suite, group or certificate in common"
	case 41, 42, 43, 44, 45, 46, 48, 49, 116: // of certificates, unknown_ca, access_denied, certificate_required
		return "the server does not accept the certificate of this client"
	case 70: // protocol_version
		return "the server does not speak DTLS 1.2"
	case 112: // unrecognized_name
		return "the server does not know the name it was called by"
	}
	return "refused by the server"
}

// cutShort is the error of a handshake that ends because ctx has ended.
func cutShort(ctx context.Context, c *handshake.Client, after time.Duration) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Explain(c.Unanswered(), after)
	}
	return ctx.Err()
}
