// Package stunnerv1 has the Go types of STUNner's own Kubernetes objects, group stunner.l7mp.io, version v1, as Weir reads them.
//
//	GatewayConfig  what the Gateways of a class share: realm, credentials, log level, Dataplane, quota
//	Dataplane      template of the Pods that serve a Gateway (cluster-scoped)
//	UDPRoute       which peers a Gateway's clients may reach; unlike the standard one its backends need no port and may have a range
//	StaticService  peers outside of the cluster, by address or prefix
//
// The types are written from the published format; objects that STUNner's operator accepts are accepted. Fields that have no effect in either
// program are read too, because the API server refuses objects with fields that it does not know.
//
// The deep copies and the manifests in deploy/operator/crds are generated from them by controller-gen (`make generate`).
//
// +kubebuilder:object:generate=true
// +groupName=stunner.l7mp.io
// +versionName=v1
package stunnerv1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object crd:maxDescLen=0 paths=. output:crd:dir=../../../../deploy/operator/crds
