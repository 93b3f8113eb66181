package udpio

import (
	"errors"
	"net/netip"
	"time"
)

const (
	// MaxDatagram is the largest UDP payload over IPv4 in bytes (RFC 768: 65,535 less 20 for IP and 8 for UDP).
	MaxDatagram = 65507
	// MaxBatch is the most messages that one system call carries.
	MaxBatch = 1024
	// MaxSegments is the most datagrams that one segmented send carries (the oldest kernels' limit).
	MaxSegments = 64
	// Forever makes a wait end only with a datagram, a Wake or Close.
	Forever time.Duration = -1
)

// ErrWoken is what a wait returns when Wake ended it and nothing was ready.
var ErrWoken = errors.New("woken")

// Message is one datagram with its addresses. A Message that was read can be written as it is: it goes back to its
// sender, from the address that it was sent to.
type Message struct {
	// Buf is the caller's memory: a read fills Buf[:N], a write sends Buf[:N].
	Buf []byte
	// N is the length of the datagram in bytes.
	N int
	// Addr is the peer. IPv4 peers are plain IPv4 addresses also on an IPv6 socket. On a connected socket a
	// write ignores it.
	Addr netip.AddrPort
	// Local is the address that a datagram was sent to, set on wildcard sockets only; on write, the source
	// address to use, or the zero Addr for the kernel's choice.
	Local netip.Addr
	// Time is when the kernel received the datagram in Unix nanoseconds, 0 unless Config.Timestamps.
	Time int64
	// Segment is, where not 0, the length in bytes of each of the datagrams that Buf[:N] holds back to back;
	// the last one may be shorter. Reads set it only under Config.Coalesce.
	Segment int
	// Truncated says that the datagram was longer than Buf and that its rest is lost.
	Truncated bool
}

// NewMessages returns n messages over one block of memory, each with a buffer of size bytes.
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
	Truncated  uint64 // datagrams longer than the buffer
	Dropped    uint64 // datagrams that found the receive buffer full; counted only under Config.Drops
}
