// Package leases keeps short texts in Leases of Kubernetes (coordination.k8s.io/v1), which the Pods of one cluster of nodes change by
// compare-and-change.
//
//	Lease CLUSTER-NAME  label weir-lb.github.io/cluster: CLUSTER   finds those of one cluster
//	                    annotation weir-lb.github.io/entry: TEXT   is what is kept
//	                    spec.holderIdentity                        says the same to people: kubectl get leases
//	                    metadata.resourceVersion                   the revision: of the newest change of any Lease, so that later ones are higher
//
// Times of a Lease are neither written nor read: who may serve is decided by durations of one process's clock, never by the time of day of
// another machine.
//
// Change is a PATCH that names the expected resourceVersion, which the API server compares and changes in one transaction of its etcd. A
// PATCH never creates what is missing, unlike a PUT of a Lease. Reads name no resourceVersion: the server answers with what is newest.
//
// resourceVersion is compared as a number: specified since Kubernetes 1.35 (KEP-5504), and so with every API server on etcd before. A
// server with other versions is an error.
//
// It needs the verbs get, list, watch, create, patch and delete on leases in the namespace of the Pods.
package leases
