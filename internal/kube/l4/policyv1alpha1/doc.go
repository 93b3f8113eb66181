// Package policyv1alpha1 has the Go types of LoadBalancerPolicy, group weir-lb.github.io, version v1alpha1: settings of the load balancer that
// the Gateway API has no fields for. A policy is attached directly, as GEP-713 describes it.
//
//	LoadBalancerPolicy ── targetRefs ──► Gateway (all listeners, or one by sectionName) | UDPRoute | TCPRoute | Service
//
// The deep copies and the manifest in deploy/operator/crds are generated from them by controller-gen (`make generate`). Rules of the schema refuse
// what is contradictory whatever the target; what depends on the target becomes a condition in status.ancestors.
//
// +kubebuilder:object:generate=true
// +groupName=weir-lb.github.io
// +versionName=v1alpha1
package policyv1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object crd:maxDescLen=200 paths=. output:crd:dir=../../../../deploy/operator/crds
