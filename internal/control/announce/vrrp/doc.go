// Package vrrp is version 3 of the Virtual Router Redundancy Protocol (RFC 9568), as the election of the one machine that holds
// a set of addresses. It is pure: packets and times go in; advertisements to send and changes of state come out.
//
//	advertisement ─► Parse ─► Machine.Receive ─┐
//	            time ─► Machine.Tick           ├─► Action{Advertise, Changed, Announce}
//	   can serve, or not ─► Machine.Start, Stop ┘
//
//	 0                   1                   2                   3
//	|Version|  Type | Virtual Rtr ID|   Priority    |  IPvX Count   |
//	|(rsvd) |  Max Advertise Interval (10 ms)|        Checksum        |
//	|                       IPvX addresses …                        |
//
// The checksum includes the pseudo header. Some routers leave it out for IPv4, because RFC 5798 was ambiguous: Parse accepts both.
//
// Terms are those of RFC 9568: the active router was called master before, and still is in keepalived. The machine differs from the
// RFC in one point: pre-emption is off unless it is configured, since the return of a better router is a second interruption.
//
// Section 6.1 defines the times:
//
//	skew        = (256 - priority) × interval of the active router / 256
//	active down = 3 × interval of the active router + skew
package vrrp
