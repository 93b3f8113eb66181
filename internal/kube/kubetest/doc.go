// Package kubetest runs a real Kubernetes API for tests: etcd, kube-apiserver and kube-controller-manager in a network namespace, and
// Pods as processes in namespaces of their own.
//
//	Start ─► ControlPlane ─ Apply(manifests), Get, Delete, Token
//	            └─ Kubelet: Pods of the API server ─► process in a namespace, with address, probes and service account
//
// The programs come from the module tools/kubelab, which .ci/deps builds once; they are found in [Directory].
package kubetest
