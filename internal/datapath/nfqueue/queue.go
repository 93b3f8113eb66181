package nfqueue

import "time"

// Packet is one packet that waits in a queue for its verdict.
type Packet struct {
	ID     uint32 // in its queue; they ascend by one
	Mark   uint32 // fwmark it came with
	Length int    // as queued, also where Data was cut to the copy range
	Data   []byte // from the IP header on; until the next Receive
	NotIP  bool   // neither IPv4 nor IPv6 (a bridge's)
	Large  bool   // a large segment (GSO), cut up behind the queue
	// Interface is the index of the one it came in on; 0: none.
	Interface uint32
}

// Verdict answers one packet.
type Verdict struct {
	ID     uint32
	Mark   uint32
	Drop   bool // else accept
	Marked bool // with Mark; else the packet keeps its own
}

// queue is one kernel queue, or its twin in memory. Receive and Answer are called by one goroutine, Wake by any.
type queue interface {
	// Receive fills in packets that wait. It waits for the first one up to patience (0: not at all), or until Wake.
	// 0 packets without an error: nothing came, or nothing but the kernel's complaints.
	Receive(into []Packet, patience time.Duration) (int, error)
	// Answer gives verdicts, in order and in as few system calls as possible.
	Answer(verdicts []Verdict) error
	// Wake ends a Receive that waits, now or the next one.
	Wake()
	// Close unbinds the queue; what waits in it is dropped. Receive must not be waiting.
	Close() error
}
