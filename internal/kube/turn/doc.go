// Package turn translates the objects of STUNner's users, Gateways of a GatewayClass of its kind, to what serves them. It is pure.
//
//	World (listed objects) ──Translate──► Configurations  one per Gateway, in stunnerd's format (API v1)
//	                                      Deployments, DaemonSets, Services, for server-side apply
//	                                      status of classes, Gateways and routes; events
//
// It reads GatewayClass, Gateway, UDPRoute (the standard one and STUNner's), ReferenceGrant, and STUNner's GatewayConfig, Dataplane and
// StaticService with the annotations stunner.l7mp.io/*. The same objects have the same effect as with STUNner's operator, with these
// differences, which are all refusals that a condition explains:
//
//   - a Secret of another namespace needs a ReferenceGrant, as the Gateway API demands; so does a backend of a standard UDPRoute, and with
//     Options.Grants that of STUNner's UDPRoute too;
//   - a Service or Deployment with the name of a Gateway that is not the Gateway's is not taken over;
//   - certificates and keys are checked before they are handed out; while a new one is wrong, the last valid one stays in force;
//   - a GatewayConfig that is wrong changes nothing: what its Gateways have stays in force;
//   - a Gateway is Programmed when a Pod of it is ready, not before.
//
// The result is the same for the same World, whatever the order of its lists.
package turn
