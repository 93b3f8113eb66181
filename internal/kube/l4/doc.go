// Package l4 translates Gateways with UDP and TCP listeners, their routes, and Services of type LoadBalancer into the configuration of
// Weir's load balancer, and into the status of each of these objects. It is pure.
//
//	GatewayClass ◄─ Gateway ── listeners ◄─ parentRef ─ UDPRoute, TCPRoute ── backendRef ─► Service ─► EndpointSlices
//	                   │            │            allowed? older one serves        granted? exists?      ready, draining
//	               addresses     one lb service for each listener and family ──────────────► backends with weights
//
// A listener of another protocol is UnsupportedProtocol: a listener that no data path serves is never Programmed. Of several routes
// on one listener the oldest one gets the packets, as the Gateway API wants it. Programmed, and the status of routes, wait until
// the data path has applied a configuration with the Gateway's present listeners, routes and Services; endpoints come and go without that.
package l4
