package handshake

import (
	"errors"
	"fmt"
)

// AlertError is the fatal alert with which a server has ended a handshake (RFC 5246 section 7.2).
type AlertError byte

func (e AlertError) Error() string { return fmt.Sprintf("handshake: the server's alert %d", byte(e)) }

// clientError is an error with the alert that is sent to the server.
type clientError struct {
	error
	alert byte
}

func (e clientError) Unwrap() error { return e.error }

// How a handshake ends without an answer.
var (
	ErrNoAnswer = errors.New("handshake: no answer")
	// ErrNoFinished: the server has answered our hello and then nothing more. Some servers drop a wrong pre-shared key or a
	// certificate that they do not trust without an alert.
	ErrNoFinished = errors.New("handshake: the server did not answer our keys")
)

// Unanswered is the error of a handshake that its owner gives up now for want of an answer: ErrNoAnswer or ErrNoFinished.
func (c *Client) Unanswered() error {
	if c.state == clientFlightSent {
		return ErrNoFinished
	}
	return ErrNoAnswer
}

// UntrustedError says why the server's certificate or raw public key is not trusted.
type UntrustedError struct{ Err error }

func (e UntrustedError) Error() string {
	return "handshake: the server's certificate: " + e.Err.Error()
}

func (e UntrustedError) Unwrap() error { return e.Err }
