package nfqueue

import "time"

// Packet is one packet that waits in a queue for its verdict.
type Packet struct {
	ID     uint32 // number of the packet in its queue; numbers ascend by one
	Mark   uint32 // fwmark it came with
	Length int    // of the whole packet, also where Data was cut to the copy range
	Data   []byte // from the IP header on; valid until the next Receive
	NotIP  bool   // neither IPv4 nor IPv6 (a bridge's)
	Large  bool   // a large segment (GSO), which the kernel splits after the queue
	// Interface is the index of the interface on which the packet arrived; 0: none.
	Interface uint32
}

// Verdict answers one packet.
type Verdict struct {
	ID     uint32
	Mark   uint32
	Drop   bool // else accept
	Marked bool // with Mark; else the packet keeps its own
}

// queue is one kernel queue, or its in-memory counterpart for tests. One goroutine calls Receive and Answer; any goroutine
// may call Wake.
type queue interface {
	// Receive fills in packets that wait. It waits for the first one up to pollTimeout (0: not at all), or until Wake. 0
	// packets without an error: nothing arrived, or only error reports of the kernel.
	Receive(into []Packet, pollTimeout time.Duration) (int, error)
	// Answer gives verdicts, in order and in as few system calls as possible.
	Answer(verdicts []Verdict) error
	// Wake ends a Receive that waits; if none waits, it ends the next one.
	Wake()
	// Close unbinds the queue; what waits in it is dropped. Receive must not be waiting.
	Close() error
}
