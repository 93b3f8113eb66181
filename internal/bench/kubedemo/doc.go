// Package kubedemo shows Weir in Kubernetes on one machine: a real API server with its controllers, Pods that are processes in network
// namespaces (package kube/kubelab), the Helm charts and the example of deploy, and clients whose sessions go on while every Pod is
// replaced.
//
//	50 DTLS clients, new ports all the time ─► L4 Gateway ─► 3 CoAP Pods      ┐ each Pod is replaced, and killed,
//	50 TURN allocations, datagrams both ways ─► L4 ─► TURN Gateway ─► server  ┘ also the load balancer's and the operator's
//
// A run whose Pods were not replaced proves nothing and fails, as does one that lost a session, an allocation or a datagram.
//
//	result, err := kubedemo.Run(ctx, kubedemo.Config{Weir: "bin/weir", Deploy: "bin/deploy", Root: ".", Out: os.Stdout})
package kubedemo
