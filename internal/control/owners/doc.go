// Package owners learns from the nodes of a CoAP cluster which of them has the sessions of which node ids, and which of them drain, and
// reports changes as owner ids and overrides for control.
//
//	Follower ──► one loop per node: QueryFunc, then WatchFunc until it ends ─► view of the service ─► report
//
// A node that does not answer leaves the view as it was: its owner ids stay, because other nodes may have its sessions only if one of them
// says so. The nodes tell each other the owners, so one that answers is enough. Of several answers about a shard the one with the
// highest version holds, except that what a node has reported before old_after of the configuration counts only while no other node answers. A node that was draining when it answered last is taken out when it answers no more.
//
// A node is queried once and followed from then on: it sends a line at each change, so the view is some milliseconds old. A node that cannot
// be followed (an older one, or one with too many followers) is queried every cluster.every of the configuration.
//
// Bounds: lb.MaxClusterNodes nodes of a service, 256 shards, one query of a node at a time; a node that hangs delays no other one.
//
// Memory outlives the process: the next one begins with it, so that its first generation steers as the last one before it did, whether or
// not nodes answer.
package owners
