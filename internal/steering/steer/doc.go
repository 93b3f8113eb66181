// Package steer decides which backend owns a packet. It is the reference for every data path; the corpus in testdata defines
// its behaviour, case by case, and package steertest runs that corpus against any data path.
//
// The order, for each packet:
//
//	parse ─► service? ─► fragment entry? ─► CID → owner? ─► conntrack entry? ─► Maglev ─► Decision
//	          no: a reply we translate, else pass
//
// Every exit has one lb.Reason and is counted by it, per service and backend too.
//
// In mode mark, the winning flow rule alone decides the service; without a matching rule it is the service of the most
// specific VIP. In a tier, fragments first go to the member that sees them all, unless they come back from there (toMember).
//
// Fragments follow the first one of their datagram. A fragment that arrives before it is held (lb.Hold), bounded in number
// and time: the data path keeps it and calls the Engine again when the first one has been forwarded. Mode NAT takes two
// fragment entries per datagram, one for its name before translation and one for its name after it. ICMP errors follow the
// flow they quote.
//
// A conntrack entry belongs to one backend with one address and mode. When that backend leaves the snapshot, or returns with
// another address or mode, its entries are stale and count as a miss. Therefore a flow never goes to the wrong server
// because a slot of a table was used again.
//
// A flow steered by CID has an entry in mode NAT, where replies must be translated. In the other modes it has one only if
// its owner is not the backend that its older entry or Maglev gives; its packets without a CID and ICMP errors about it then
// follow that entry. When the conntrack table is full of live flows, modes that need no entry continue with Maglev or CID
// alone, and NAT drops new flows.
//
// new_flow_rate is a token bucket per service. It is full at the start and holds one second's worth: a burst of n flows,
// then one per second/n. A new entry takes a token. In mode NAT a flow steered by CID takes none; ICMP errors and replies
// take none either.
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
