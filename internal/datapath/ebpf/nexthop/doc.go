// Package nexthop knows how packets reach an address: interface, link addresses
// and MTU, kept current by the kernel's route, neighbour and link events.
//
//	netlink events ─► Table ─► Watch callbacks: address → Hop
//
// Neighbours that are watched are made managed ones (NTF_EXT_MANAGED, Linux
// 5.16), so the kernel itself keeps probing them, also while no program sends to
// them through its own stack. One that does not answer is Failed and is probed
// again every few seconds.
package nexthop
