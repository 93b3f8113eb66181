// Package operator keeps the objects of a Kubernetes cluster and Weir's data planes in accordance: it reads the whole state of the
// world, lets each Controller translate it, and writes only what differs.
//
//	informers ─► dirty ─ throttle ─► World ─► Controller.Translate ─► Result ─┬─► Publisher: configurations of data planes
//	                ▲                                                         ├─► objects: server-side apply, or deleted
//	                └── data planes report what they have applied             ├─► statuses: status subresource
//	                                                                          └─► events
//
// Every change renders everything, at most once in the interval of the throttle: there is no state that a missed event could spoil.
// Translate is pure; what it needs of the data planes is in World.Applied.
//
// # To add a controller
//
//   - Write a pure package with a function from *world.World to Result, tested by golden files. Read objects with world.All and
//     world.Get, never change them, and take the time from World.Now. Of the GatewayClasses take those whose spec.controllerName is
//     the Controller's Name; leave everything else alone, also the parent statuses of other controllers.
//   - Name in Controller.Kinds each kind that it reads. A kind is Optional where its CRD may be missing: it is then empty until it is served.
//   - Put whole configurations into Result.Configs, one for each data plane, each with the digests of its pieces, such as one for each
//     Gateway. As soon as all processes of the plane have applied a configuration, World.Applied has its digests, and Translate is called
//     again: let conditions such as Programmed depend on World.Has.
//   - Put a status into Result.Statuses with Status(object, change). Several controllers may change different parts of one status.
//   - Put objects, such as Deployments, into Result.Objects, whole, with type, name and namespace, and name their kinds in
//     Controller.Owned: objects of these kinds with the controller's label that are in no Result are deleted.
//   - Add what it does to Result.Events; an event is written when it was not in the Result before.
//   - Give the roles in deploy/operator the verbs: get, list and watch for Kinds; also patch, create and delete for Owned; and
//     update for the status of what has one.
//   - Append the Controller in internal/cli/operator.
package operator
