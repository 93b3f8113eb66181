package gateway

import "sync/atomic"

// streamReason is how a connection of a stream-like listener, or a datagram to a DTLS listener, ended. They stand beside
// allocation.Reason in a listener's reasons: those tell of messages, these of what carries them.
type streamReason uint8

const (
	connectionAccepted streamReason = iota // not an end: everyone begins here
	connectionRefused                      // too many connections, in all or of the source's prefix
	handshakeRefused                       // too many handshakes under way, in all or of the prefix
	handshakeEvicted                       // was under way when others needed its place
	handshakeFailed                        // wrong, or broken off by the client
	handshakeTimeout                       // took too long
	guestRefused                           // too many connections without an allocation
	guestEvicted                           // had no allocation when others needed its place
	guestTimeout                           // had no allocation in time
	streamNotTurn                          // the bytes were no TURN client's
	streamLongFrame                        // a message longer than a client without an allocation may send
	connectionClosed                       // by the client
	connectionBroken                       // reset, or the client is not there any more
	clientSlow                             // took no bytes for writeTimeout, or left its answers unread
	connectionShut                         // the listener or the gateway ended
	connectionBound                        // became the data connection of a TCP relay (RFC 6062)
	dtlsMalformed                          // a datagram without a DTLS record, or of no session
	dtlsCookieSent                         // a client was asked for its cookie
	dtlsBadCookie                          // and showed a wrong one
	dtlsInboxFull                          // datagrams of a session that came faster than they were read
	dtlsReplaced                           // a client began anew from the same address
	streamReasonCount
)

func (r streamReason) String() string {
	return [...]string{
		"connection_accepted", "connection_refused", "handshake_refused", "handshake_evicted", "handshake_failed",
		"handshake_timeout", "guest_refused", "guest_evicted", "guest_timeout", "stream_not_turn", "stream_long_frame",
		"connection_closed", "connection_broken", "client_slow", "connection_shut", "connection_bound",
		"dtls_malformed", "dtls_cookie_sent", "dtls_bad_cookie", "dtls_inbox_full", "dtls_replaced",
	}[r]
}

// streamCounts counts per listener. Any goroutine may add.
type streamCounts [streamReasonCount]atomic.Uint64

func (c *streamCounts) add(r streamReason) { c[r].Add(1) }

// addTo merges what is not 0 into a listener's reasons.
func (c *streamCounts) addTo(reasons map[string]uint64) {
	for r := range streamReasonCount {
		if n := c[r].Load(); n > 0 {
			reasons[r.String()] += n
		}
	}
}
