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

	MaxPending int // messages awaiting an acknowledgement, a response or their time; default 65536
	MaxMessage int // longest message kept for retransmission, in bytes; default 16384
	LogBytes   int // stored answers to unsafe requests; default 16 MiB, taken from the system only as it fills

	Seed uint64 // of message ids and back-off; 0 has no special meaning
	// Supported names the critical options that the Handler (requests) or Events (responses) understands; nil: none.
	Supported message.Supported
	// Proven is called when a probe of Reply.Probe was answered; nil: no call.
	Proven func(*Session)
	// Notified is called with the end of a message of Endpoint.Notify, named by its message id, unless Withdraw ended it. For a
	// reset that belongs to no pending message it is called with Rejected: that may be a non-confirmable notification. nil: no
	// call.
	Notified func(s *Session, mid uint16, outcome Outcome)
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
	setDefault(&c.MaxPending, 65536)
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
	Requests        uint64 `json:"requests"`      // executed by the Handler, repeated safe requests included
	Responses       uint64 `json:"responses"`     // matched to a request of ours
	Malformed       uint64 `json:"malformed"`     // datagrams that are no well-formed message
	BadOptions      uint64 `json:"bad_options"`   // messages rejected for a critical option
	Duplicates      uint64 `json:"duplicates"`    // recognised by their message id
	Forgotten       uint64 `json:"forgotten"`     // duplicates of an unsafe request whose answer was no longer stored: not executed, not answered
	Overwritten     uint64 `json:"overwritten"`   // message ids forgotten before their lifetime ended, because the ring was full
	TooLarge        uint64 `json:"too_large"`     // answers not stored or replies not sent because they exceed LogBytes or MaxMessage
	Pings           uint64 `json:"pings"`         // answered with Rst
	Separate        uint64 `json:"separate"`      // separate responses
	Notifications   uint64 `json:"notifications"` // first transmissions by Notify
	Probes          uint64 `json:"probes"`        // pings that ask a peer to prove its address
	Sent            uint64 `json:"sent"`          // first transmissions of messages by Send and of separate responses
	Retransmissions uint64 `json:"retransmissions"`
	Acks            uint64 `json:"acks"`         // acknowledgements that matched
	Resets          uint64 `json:"resets"`       // resets that matched
	Timeouts        uint64 `json:"timeouts"`     // pending messages given up
	Stray           uint64 `json:"stray"`        // acknowledgements, resets and responses that match nothing
	PendingFull     uint64 `json:"pending_full"` // messages refused because MaxPending was reached, or PerSession
}

// Add adds other to c.
func (c *Counters) Add(other *Counters) {
	c.Requests += other.Requests
	c.Responses += other.Responses
	c.Malformed += other.Malformed
	c.BadOptions += other.BadOptions
	c.Duplicates += other.Duplicates
	c.Forgotten += other.Forgotten
	c.Overwritten += other.Overwritten
	c.TooLarge += other.TooLarge
	c.Pings += other.Pings
	c.Separate += other.Separate
	c.Probes += other.Probes
	c.Notifications += other.Notifications
	c.Sent += other.Sent
	c.Retransmissions += other.Retransmissions
	c.Acks += other.Acks
	c.Resets += other.Resets
	c.Timeouts += other.Timeouts
	c.PendingFull += other.PendingFull
	c.Stray += other.Stray
}
