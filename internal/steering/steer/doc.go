// Package steer decides which backend owns a packet. It is the reference that
// every data path is held to; the corpus in testdata says what it does, case by
// case, and package steertest runs that corpus against any data path.
//
// The order, for each packet:
//
//	parse ─► service? ─► fragment entry? ─► CID → owner? ─► conntrack entry? ─► Maglev ─► Decision
//	          no: a reply we translate, else pass
//
// Every exit has one lb.Reason and is counted by it, per service and backend too.
//
// In mode mark, the service is that of the winning flow rule, which decides alone, and
// only without one that of the most specific VIP. In a tier, fragments first go to
// the member that sees them all, unless they come back from there (toMember).
//
// Fragments follow the first one of their datagram. One that comes before it is
// held (lb.Hold), bounded in number and time; the data path keeps it and asks
// again once the first one was forwarded. Mode NAT takes two fragment entries
// per datagram, its name before and after translation. ICMP errors follow the flow they quote.
//
// A conntrack entry belongs to one backend with one address and mode. When that
// backend leaves the snapshot, or returns with another of these, its entries are stale
// and count as a miss: never does a flow go to the wrong server because a
// place in a table was used again.
//
// A flow steered by CID has an entry in mode NAT, where replies must be translated,
// and elsewhere if its owner is not the backend that its older entry or Maglev
// gives: its packets without a CID and ICMP errors about it follow that entry.
// When the conntrack table is full of live flows, modes that need no entry go on by
// Maglev or CID alone and NAT drops new flows.
//
// new_flow_rate is a token bucket per service, full at the start, that holds one
// second's worth: a burst of n flows, then one per second/n. A new entry takes a
// token; of a flow steered by CID in mode NAT, ICMP errors and replies none.
//
//	e := steer.New(snapshot, steer.Options{})
//	var p packet.Packet
//	if err := packet.Parse(bytes, &p); err != nil { e.Malformed() }
//	d := e.Packet(&p, now)
//
// An Engine takes no lock and reads no clock: one per worker, used by one
// goroutine at a time. Packet and Datagram do not allocate once their tables
// have grown to their working size.
package steer
