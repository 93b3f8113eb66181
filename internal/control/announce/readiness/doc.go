// Package readiness finds what would keep this machine from announcing the addresses of a configuration, before an announcement fails: the
// checks of weir doctor for package announce and its drivers. It reads the network namespace of the calling thread, sends nothing and
// changes nothing.
//
//	BGP:  routes to the neighbours, own addresses, TCP and UDP ports, passwords
//	VRRP: capabilities, interfaces, addresses, settings of ARP, the reverse path filter, and advertisements of other machines
//
// Each finding that is not ok has a remedy: a command, or what to change in the configuration. A weir that runs already is no finding: its
// sockets and its addresses are expected.
package readiness
