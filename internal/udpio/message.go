package udpio

import (
	"errors"
	"net/netip"
	"time"
)

const (
	// MaxDatagram is the largest UDP payload over IPv4 in bytes (RFC 768: 65,535 less 20 for IP and 8 for UDP).
	MaxDatagram = 65507
	// MaxBatch is the maximum number of messages that one system call carries.
	MaxBatch = 1024
	// MaxSegments is the maximum number of datagrams that one segmented send carries (the limit of the oldest
	// kernels).
	MaxSegments = 64
	// Forever makes a wait end only by a datagram, Wake or Close.
	Forever time.Duration = -1
)

// ErrWoken is returned by a wait that Wake ended while nothing was ready.
var ErrWoken = errors.New("woken")

// Message is one datagram with its addresses. A Message that was read can be written unchanged: it then goes back to
// its sender, from the address to which it was sent.
type Message struct {
	// Buf is the caller's memory: a read fills Buf[:N], a write sends Buf[:N].
	Buf []byte
	// N is the length of the datagram in bytes.
	N int
	// Addr is the peer. IPv4 peers are plain IPv4 addresses also on an IPv6 socket. A write on a connected socket
	// ignores it.
	Addr netip.AddrPort
	// Local is the address to which a datagram was sent, set on wildcard sockets only. For a write it is the source
	// address, or the zero Addr to let the kernel choose.
	Local netip.Addr
	// Segment, if not 0, is the length in bytes of each of the datagrams that Buf[:N] contains back to back; the last
	// one may be shorter. Reads set it only under Config.Coalesce.
	Segment int
	// Truncated means that the datagram was longer than Buf and its rest is lost.
	Truncated bool
}

// NewMessages returns n messages in one block of memory, each with a buffer of size bytes.
func NewMessages(n, size int) []Message {
	block := make([]byte, n*size)
	messages := make([]Message, n)
	for i := range messages {
		messages[i].Buf = block[i*size : (i+1)*size : (i+1)*size]
	}
	return messages
}

// Stats are the counters of one Conn, or the sums of a Group.
type Stats struct {
	Received   uint64 // datagrams read (a coalesced read counts once)
	Sent       uint64 // datagrams given to the kernel
	SendErrors uint64 // datagrams that the kernel refused
	Segmented  uint64 // sends that carried more than one datagram
	// Unsegmented counts such sends that the kernel refused though it took their datagrams one by one.
	Unsegmented uint64
	Truncated   uint64 // datagrams longer than the buffer
	Dropped     uint64 // datagrams that found the receive buffer full; counted only under Config.Drops
}
