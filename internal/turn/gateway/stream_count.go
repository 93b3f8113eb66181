package gateway

import "sync/atomic"

// streamReason is how a connection of a TCP, TLS or DTLS listener, or a datagram to a DTLS listener, ended. The
// reasons of a listener include these and allocation.Reason: the latter are about messages, these about connections.
type streamReason uint8

const (
	connectionAccepted streamReason = iota // not an end: counted for every connection
	connectionRefused                      // too many connections, in total or of the source's prefix
	handshakeRefused                       // too many handshakes in progress, in total or of the prefix
	handshakeEvicted                       // ended in favour of another source's handshake
	handshakeFailed                        // invalid, or aborted by the client
	handshakeTimeout                       // took too long
	guestRefused                           // too many connections without an allocation
	guestEvicted                           // had no allocation, and ended in favour of another source's connection
	guestTimeout                           // had no allocation in time
	streamNotTurn                          // the bytes were not those of a TURN client
	streamLongFrame                        // a message longer than a client without an allocation may send
	connectionClosed                       // by the client
	connectionBroken                       // reset, or the client disappeared
	clientSlow                             // accepted no bytes for writeTimeout, or did not read its answers
	connectionShut                         // the listener or the gateway ended
	connectionBound                        // became the data connection of a TCP relay (RFC 6062)
	dtlsReplaced                           // a client began a new session from the same address
	streamReasonCount
)

func (r streamReason) String() string {
	return [...]string{
		"connection_accepted", "connection_refused", "handshake_refused", "handshake_evicted", "handshake_failed",
		"handshake_timeout", "guest_refused", "guest_evicted", "guest_timeout", "stream_not_turn", "stream_long_frame",
		"connection_closed", "connection_broken", "client_slow", "connection_shut", "connection_bound",
		"dtls_replaced",
	}[r]
}

// streamCounts counts per listener. Any goroutine may add.
type streamCounts [streamReasonCount]atomic.Uint64

func (c *streamCounts) add(r streamReason) { c[r].Add(1) }

// addTo adds the counters other than 0 to a listener's reasons.
func (c *streamCounts) addTo(reasons map[string]uint64) {
	for r := range streamReasonCount {
		if n := c[r].Load(); n > 0 {
			reasons[r.String()] += n
		}
	}
}
