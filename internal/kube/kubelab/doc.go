// Package kubelab runs a real Kubernetes API in network namespaces: etcd, kube-apiserver and kube-controller-manager in one of them, and
// Pods as processes in namespaces of their own. Tests (package kubetest) and the demonstration (package kube/demo) use it.
//
//	Start ─► ControlPlane ─ Apply(manifests), Get, Merge, Delete, Token, Pause
//	            └─ Kubelet: Pods of the API server ─► process in a namespace, with address, probes and service account
//
// A Pod has one container, whose image is an unpacked directory. What the kubelet knows of a Pod: environment, volumes of Secrets,
// ConfigMaps, tokens, empty and host directories, user and capabilities, host network, the readiness probe, restarts, and deletion with
// its grace. A kind of volume or variable that it does not know is an error in the log, and the Pod does not start.
//
// The programs come from the module tools/kubelab, which .ci/deps builds once; they are found in [Directory].
package kubelab
