// Package embedded runs the store of a cluster within its nodes: each has a server of etcd, and a majority of them agrees on every change.
//
//	node 1 ── in-process calls ──► etcd ◄── Raft over TLS, TCP port of the management address ──► etcd ◄── node 2, node 3, …
//
// All nodes are members, with the names and addresses of the cluster's own configuration, which is the same on all. There is no port for
// clients. Members know each other by certificates of an authority whose key is derived from the secret of the nodes' link (HKDF-SHA256),
// so that who knows the secret is a member, and nothing else has to be deployed.
//
// What a member has agreed to is on its disk before the others count on it: it must not forget, or a change could be made twice. So the
// directory has to outlive the machine's memory. A member that has lost it is refused by the others (already been bootstrapped); then
// give all nodes another prefix, one after the other, which begins another store.
//
// Quorum: with N members, N/2 + 1 must run and reach each other. With fewer nothing changes: no sessions are taken over and no node gets
// another buddy, and nodes go on as package replica says while the store is away. Two members cannot lose any, so they are refused.
//
// etcd ends its process where it cannot go on, such as on a full disk. Here only the goroutine ends that found it, and the server is started again.
package embedded
