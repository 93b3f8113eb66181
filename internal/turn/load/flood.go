package load

import (
	"context"
	"errors"
	"net/netip"
)

// Flood is unauthenticated Allocate requests from many source ports.
type Flood struct {
	Server  netip.AddrPort
	Count   int          // requests in all, each from a fresh port
	Sources []netip.Addr // default the kernel's choice
	Rate    float64      // a second; 0: as fast as one thread can
}

// Flooded is how the server took it.
type Flooded struct {
	Sent          uint64         `json:"sent"`
	SentBytes     uint64         `json:"sent_bytes"`
	Answered      uint64         `json:"answered"`
	AnsweredBytes uint64         `json:"answered_bytes"`
	Codes         map[int]uint64 `json:"codes"`   // STUN error codes of the answers; 0: a success
	Largest       float64        `json:"largest"` // answer by its request, bytes
}

// Run floods until Count requests were sent or ctx ends.
func (f Flood) Run(ctx context.Context) (Flooded, error) { return Flooded{}, errors.New("not yet") }
