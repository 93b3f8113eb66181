// Package holder holds addresses on this machine while an election gives them to it: the driver of package announce for networks
// whose hosts find an address by ARP or neighbour discovery.
//
//	announce.Route ─► Holder ─► router, one for each virtual router and family ─► vrrp.Machine
//	                             │ raw socket: advertisements        │
//	                             │ packet socket: who else claims it ├─► address on the interface (netlink), or answers to ARP
//	                             └ netlink: link, own address        └─► announcements: ARP, neighbour advertisements
//
// A router takes part while one of its addresses can be served. When none can, or at the end, it removes the addresses and then sends
// an advertisement of priority 0, so that a backup takes over after its skew time.
//
// Hold address puts the addresses on the interface, with a lifetime that the router renews: after a kill -9 the kernel removes them by
// itself, while the addresses of other VRRP programs stay, and answer as well as the new holder does. They are deprecated, so the machine does not
// choose them as a source, and have an own protocol number (IFA_PROTO), by which a start finds what was left.
//
// Hold arp leaves the interface as it is and answers ARP requests and neighbour solicitations itself: for data paths that
// take packets before the stack, and for direct server return, where the kernel drops replies whose source is an address of its own.
//
// Announcements go out five times at a takeover, five times after 5 s, and then once a minute: switches forget after 5 minutes, some
// routers never ask. They are repeated when the link returns, after a partition, and when another machine claims an address.
//
// Needs CAP_NET_RAW (sockets) and CAP_NET_ADMIN (addresses). Interfaces are Ethernet.
package holder
