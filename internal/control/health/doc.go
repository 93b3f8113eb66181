// Package health probes backends actively and reports those whose state has changed, as overrides for control.
//
//	Prober ──► one loop per probed backend: wait interval ─► ProbeFunc ─► rise/fall ─► report
//
// A backend starts as healthy, because a restart of the balancer must not take a working service down. It goes down after
// `fall` failures in a row and comes back after `rise` successes. Down is an lb.OverrideDown. Coming back removes that
// override and never forces a backend up, so an operator's override stays in force.
//
// Probes: TCP (a connection opens), UDP (anything answers), HTTP (status), CoAP ping (RFC 7252 section 4.3: an empty
// CON is answered by RST), STUN Binding (RFC 8489). At most maxInFlight run at one time; the first ones of many
// backends are spread over their interval. With health.tunnel they go to a VIP through the tunnel of mode l3dsr
// (tunnel.go). How packets of clients are tunnelled is the matter of the data path, not of this package.
package health
