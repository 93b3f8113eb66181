// Package pods tells which Pods of Kubernetes run the nodes of a cluster, and at which addresses.
//
//	environment --FromEnvironment--> Config --Follow--> [Pod, Pod, …] whenever they change
//
// Follow lists and watches the Pods of one namespace that a label selector finds. Without a selector they are those of the same
// controller as this process's Pod, such as its StatefulSet, of whatever revision: in a rolling update old and new Pods stay one cluster.
//
// The environment is that of Californium's nodes, KUBECTL_HOST and its siblings; what is not set there comes from the Pod's service
// account. Differences on purpose: the server's certificate is always verified, a token is never sent without TLS, and the default
// selector is not the label controller-revision-hash, which splits the cluster while it is updated.
//
// It needs the verbs get, list and watch on Pods. Where watch is refused, as by the roles of Californium's manifests, the list is read
// again, at intervals of up to half a minute.
package pods
