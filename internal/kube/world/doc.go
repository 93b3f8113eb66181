// Package world holds the objects of a Kubernetes cluster, listed at one moment, as one value.
//
//	informers ── list ──► World{Now, Applied, objects by kind} ──► Translate, which is pure
//
// Objects are those of the informers' caches: they are shared, and no reader changes them. Each kind is in the order of namespace and
// name, so that the same objects give the same answers whatever the order in which they came.
package world
