package exchange

import (
	"fmt"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Config sets the transmission parameters (RFC 7252 section 4.8) and the bounds of an Endpoint. Zero values take the defaults.
type Config struct {
	AckTimeout       time.Duration // first retransmission of a confirmable message, at least; default 2 s
	AckRandomFactor  float64       // the first time-out is AckTimeout times 1..AckRandomFactor; default 1.5
	MaxRetransmit    int           // default 4; negative: none
	ExchangeLifetime time.Duration // how long the message id of a Con is remembered; default 247 s
	NonLifetime      time.Duration // how long the message id of a Non is remembered; default 145 s
	ResponseTimeout  time.Duration // wait for a response after the empty ACK or a Non request; default 93 s (MAX_TRANSMIT_WAIT)

	NStart int // requests to a session that may be outstanding at a time; default 1, negative: any number
	// ProbingRate is how many bytes of non-confirmable requests per second go to a peer that does not respond; default 1, negative: any
	// number.
	ProbingRate int

	MaxPending int // messages awaiting an acknowledgement, a response or their time; default 65536
	MaxMessage int // longest message kept for retransmission, in bytes; default 16384
	LogBytes   int // stored answers to unsafe requests; default 16 MiB, taken from the system only as it fills

	// Log is where the answers are stored instead, LogSize bytes that outlive the process, zero at first; LogNumber tells it from the logs of
	// other Endpoints that sessions may come from (Endpoint.Adopt). nil: memory of its own.
	Log       []byte
	LogNumber int

	Seed uint64 // of message ids and back-off; 0 has no special meaning
	// Supported names the critical options that the Handler (requests) or Events (responses) understands; nil: none.
	Supported message.Supported
	// Multicast reports whether a request to a multicast group is executed; nil: none is.
	Multicast func(request *message.Message) bool
	Leisure   Leisure // of the answers to such requests
	// Proven is called when a probe of Reply.Probe was answered; nil: no call.
	Proven func(*Session)
	// Notified is called with the end of a message of Endpoint.Notify, named by its message id, unless Withdraw ended it. For a
	// reset that belongs to no pending message it is called with Rejected: that may be a non-confirmable notification. nil: no
	// call.
	Notified func(s *Session, mid uint16, outcome Outcome)
	// Acknowledged is called when an empty acknowledgement of a request has come: its response will be separate, or there is none
	// (RFC 7967). nil: no call.
	Acknowledged func(s *Session, id ID)
	// Answers reports whether a separate response with the token of a pending request answers it. Otherwise it belongs to no pending
	// request, as a notification of an earlier registration with this token does, which says so where messages are protected. nil: it
	// does.
	Answers func(s *Session, id ID, m *message.Message) bool
	// Unmatched is called for a response that belongs to no pending request, such as a notification of RFC 7641. m is valid
	// only during the call. It returns false where no one expects the response, which rejects a Con. nil: no one does.
	Unmatched func(s *Session, m *message.Message) bool
}

// Validate reports the first invalid value.
func (c *Config) Validate() error {
	switch {
	case c.AckTimeout < 0:
		return fmt.Errorf("ackTimeout: %s is negative; use 2s", c.AckTimeout)
	case c.AckRandomFactor != 0 && c.AckRandomFactor < 1:
		return fmt.Errorf("ackRandomFactor: %g is below 1; use 1.5", c.AckRandomFactor)
	case c.MaxRetransmit > 20:
		return fmt.Errorf("maxRetransmit: %d doubles the time-out beyond weeks; use at most 20", c.MaxRetransmit)
	case c.LogBytes < 0 || c.LogBytes > 1<<31:
		return fmt.Errorf("logBytes: %d is not between 0 and 2 GiB", c.LogBytes)
	case c.MaxPending < 0 || c.MaxPending > 1<<24:
		return fmt.Errorf("maxPending: %d is not between 0 and %d", c.MaxPending, 1<<24)
	}
	return nil
}

func (c Config) withDefaults() Config {
	setDefault(&c.AckTimeout, 2*time.Second)
	setDefault(&c.AckRandomFactor, 1.5)
	setDefault(&c.MaxRetransmit, 4)
	setDefault(&c.ExchangeLifetime, 247*time.Second)
	setDefault(&c.NonLifetime, 145*time.Second)
	setDefault(&c.ResponseTimeout, 93*time.Second)
	setDefault(&c.NStart, 1)
	setDefault(&c.ProbingRate, 1)
	setDefault(&c.MaxPending, 65536)
	setDefault(&c.Leisure.Default, 5*time.Second)
	setDefault(&c.MaxMessage, 16384)
	setDefault(&c.LogBytes, 16<<20)
	c.MaxRetransmit = max(c.MaxRetransmit, 0)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Counters count since New. They are plain fields: read them on the goroutine that uses the Endpoint.
type Counters struct {
	Requests        uint64 `json:"requests" metric:"_requests_total" help:"Requests executed, repeated safe ones included."`
	Responses       uint64 `json:"responses" metric:"_responses_total" help:"Responses that matched a request of this node."`
	Malformed       uint64 `json:"malformed" metric:"_malformed_total" help:"Datagrams that are no well-formed message."`
	BadOptions      uint64 `json:"bad_options" metric:"_bad_options_total" help:"Messages rejected for a critical option."`
	Duplicates      uint64 `json:"duplicates" metric:"_duplicates_total" help:"Messages recognised as repeated by their message id."`
	Forgotten       uint64 `json:"forgotten" metric:"_forgotten_total" help:"Repeated unsafe requests whose answer was no longer stored: not executed, not answered."`
	Overwritten     uint64 `json:"overwritten" metric:"_overwritten_total" help:"Message ids forgotten before their lifetime ended, because the table was full."`
	TooLarge        uint64 `json:"too_large" metric:"_too_large_total" help:"Answers not stored, or replies not sent, because they exceed a bound."`
	Pings           uint64 `json:"pings" metric:"_pings_total" help:"CoAP pings answered."`
	Separate        uint64 `json:"separate" metric:"_separate_total" help:"Separate responses."`
	Notifications   uint64 `json:"-"` // first transmissions by Notify
	Probes          uint64 `json:"probes" metric:"_probes_total" help:"Pings that require a peer to prove its address."`
	Sent            uint64 `json:"sent" metric:"_sent_total" help:"First transmissions of confirmable and separate messages."`
	Retransmissions uint64 `json:"retransmissions" metric:"_retransmissions_total" help:"Messages sent again."`
	Acks            uint64 `json:"acks" metric:"_acks_total" help:"Acknowledgements that matched."`
	Resets          uint64 `json:"resets" metric:"_resets_total" help:"Resets that matched."`
	Timeouts        uint64 `json:"timeouts" metric:"_timeouts_total" help:"Pending messages given up."`
	Stray           uint64 `json:"stray" metric:"_stray_total" help:"Acknowledgements, resets and responses that match nothing."`
	PendingFull     uint64 `json:"pending_full" metric:"_pending_full_total" help:"Messages refused because too many were pending, in all or of one session."`

	Multicast        uint64 `json:"multicast" metric:"_multicast_total" help:"Messages to multicast groups."`
	MulticastAnswers uint64 `json:"multicast_answers" metric:"_multicast_answers_total" help:"Answers to messages to multicast groups, sent within the leisure."`
	MulticastIgnored uint64 `json:"multicast_ignored" metric:"_multicast_ignored_total" help:"Messages to multicast groups without an answer: confirmable, not for discovery, or with an error or nothing as the result."`
	MulticastRefused uint64 `json:"multicast_refused" metric:"_multicast_refused_total" help:"Requests to multicast groups without an answer because too many answers were waiting."`
}
