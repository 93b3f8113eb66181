// Package streamserver serves CoAP over TCP and TLS (RFC 8323): connections are watched by the poller of one of a few workers, with
// no goroutine, no lock and, while nothing is under way, no buffer of their own.
//
//	accept ─► TLS: handshake in a goroutine, bounded ─► worker by source: guest ─► member, with its first request ─► closed
//	poller ─► read once ─► frames (package stream) ─► Handler.Serve ─► queue ─► one write at the end of the poll
//
// Everything of a connection belongs to one worker. Every method of Handler, Worker and Peer is called on that worker's goroutine,
// unless it says otherwise. Weir's handlers take and return datagrams; the frames stay here.
//
// Bounds, each counted in Stats when it is reached:
//
//   - Config.MaxConnections of a worker, a quarter of them of one source. When the table is full, a guest makes room, in the order of
//     package evict. A member never makes room for a guest: the new connection is refused.
//   - Config.MaxHandshakes TLS handshakes at a time, a quarter of them of one source, each of at most 10 s.
//   - A guest has 30 s for its CSM and first request, a message 30 s from its first byte to its last one, a connection Config.Idle
//     without a byte in either direction. A peer that does not take what was sent to it for 30 s is closed.
//   - Incomplete messages: stream.MaxMessage bytes each, Config.MaxHeld of a worker. What is queued for one peer: see queueBytes. A
//     connection is not read while more is queued.
package streamserver
