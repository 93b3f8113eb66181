package exchange

import (
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Sender sends one datagram to a session's peer outside of a Receive call: retransmissions, separate responses, requests.
// It must copy datagram before it returns and must not call back into the Endpoint. A datagram that cannot be sent now may be
// dropped: retransmission recovers.
type Sender interface {
	SendTo(s *Session, datagram []byte, now time.Duration)
}

// Handler answers requests; a server's half of an Endpoint.
type Handler interface {
	// Serve answers request by filling reply. request and its slices are valid only during the call.
	Serve(s *Session, request *message.Message, reply *Reply, now time.Duration)
}

// Events receives the results of messages sent with Endpoint.Send; a client's half of an Endpoint. Its methods may call Send
// for the same or another session.
type Events interface {
	// Response delivers the response to the request that id names, valid only during the call. rtt counts from the first
	// transmission; retransmissions is how often the request was repeated.
	Response(s *Session, id ID, response *message.Message, rtt time.Duration, retransmissions int)
	// Failed ends a request without a response.
	Failed(s *Session, id ID, reason Failure)
}

// ID names one pending message of an Endpoint; it is never 0 and not reused soon.
type ID uint64

// Failure says why a message sent with Send got no answer.
type Failure uint8

// Reasons of Failed.
const (
	Timeout   Failure = iota // all retransmissions unanswered, or no response within Config.ResponseTimeout
	Rejected                 // the peer answered with Rst; a ping's normal end
	Cancelled                // Cancel or Forget
)

// String returns the reason in lower case.
func (f Failure) String() string {
	switch f {
	case Timeout:
		return "timeout"
	case Rejected:
		return "rejected by reset"
	}
	return "cancelled"
}
