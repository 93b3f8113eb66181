// Package neighbour builds and reads the Ethernet frames that tell where an address is: ARP (RFC 826, 5227) and IPv6 neighbour
// discovery (RFC 4861). It is pure.
//
// Announcement returns what a router sends for an address that it has just taken over, so that hosts and switches send there: for
// IPv4 an ARP request and an ARP reply, because some stacks learn from one kind only, and for IPv6 an unsolicited advertisement
// with the override flag.
//
// Probe returns a question whose answer shows that another machine has the address too. For IPv4 it has no sender address, so it changes
// no neighbour table (RFC 5227 section 2.1.1).
//
// Parse reads the frames of others: the claim of an address, or a question for one. Answer answers a question.
//
// Frames are untagged Ethernet. VLAN interfaces of Linux add the tag.
package neighbour
