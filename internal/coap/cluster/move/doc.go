// Package move decides which node of a cluster has which sessions, and moves them: a pure state machine. Messages of other nodes, the
// time, and sessions as opaque bytes go in; messages, sessions to import, and what has become of exported ones come out.
//
// A shard is all sessions whose connection ids have the same owner id. Its home is the node with that id, and its owner the node that
// other nodes send its records to: the home, until it drains. Owners have a version, which only the present owner raises.
//
//	draining node                          other node                    all nodes
//	Begin     ───────────────────────────► room, nothing contradicts
//	          ◄─────────────────────────── Ready
//	Session 0 (no longer here), 1, 2 … ──► imports each one
//	          ◄─────────────────────────── Ack 0, 1, 2 …
//	Commit    ───────────────────────────► owner from now on ──────────► Announce: owner, version
//	          ◄─────────────────────────── Committed
//
// When the home is back and does not drain, the shard returns to it in the same way.
//
// A sequence number must be used by one node only. Therefore a session leaves its node before its bytes are sent, and is never put back:
// if no Ack comes, it is dropped, because the other node may have it. The other node imports each number of a transfer once,
// forgets no transfer that could be repeated, and takes none that was meant for an earlier process (Begin names the process).
//
// A record that finds no session goes to where the session may be (Routes.Onward), through at most one more node.
//
// What happens when nodes fail: a shard whose owner is silent for [ClaimAfter] is claimed by its home, or by a node that has sessions of
// it; of two claims of one version the one of the home wins, then that of the lower id, and the other node moves its sessions there.
//
// Messages travel over the secured link only, behind the byte [Type], which nodes of Californium ignore:
//
//	58 │ kind 1 │ fields of the kind, little-endian (message.go)
//
// Limits: 256 shards, one transfer at a time from a node, [Window] sessions of it without an Ack, [MaxSession] bytes of a session.
package move
