package client

import (
	"math/rand/v2"
	"time"
)

// maxRetransmit is RFC 7252's MAX_RETRANSMIT.
const maxRetransmit = 4

// backOff draws the first waiting time: ACK_TIMEOUT to ACK_TIMEOUT times ACK_RANDOM_FACTOR 1.5 (RFC 7252 section 4.2).
func backOff(ackTimeout time.Duration) time.Duration {
	return ackTimeout + rand.N(ackTimeout/2+1)
}
