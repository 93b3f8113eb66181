package membership

import (
	"net/netip"
	"time"
)

// Kind is what has happened.
type Kind uint8

// Kinds of events. Each is reported once, not for every message.
const (
	Joined     Kind = iota // a node was found, or answers again
	Silent                 // a node has not answered for 10 s
	Left                   // likewise, and its id is free
	Moved                  // a node is at another address now
	Renamed                // another node is at the address now
	Duplicate              // two nodes have one id: the one that had it first keeps it
	OwnID                  // another node has the id of this one
	Mistaken               // a node announces another id than configured, or than it goes on to answer with
	Full                   // there is no room for another node
	ClockJump              // the process was stopped, or its clock jumped
	Backwards              // the clock went back
	Complete               // every address has a node
	numOfKinds             // how many there are
)

// Event is for the log.
type Event struct {
	Kind  Kind
	ID    uint32         // of the node
	Addr  netip.AddrPort // its address
	Other netip.AddrPort // Moved: the earlier address; Duplicate: that of the other node
	Was   uint32         // Renamed, Mistaken: the earlier id
	For   time.Duration  // Silent, Left: for how long; ClockJump, Backwards: how far
}

// Output is what a call asks its caller to do.
type Output struct {
	Ping   []netip.AddrPort
	Events []Event
}

func (o *Output) report(e Event) { o.Events = append(o.Events, e) }
