// Package resource is the tree of resources of a CoAP server and what all of them share: discovery, conditions, block-wise
// transfer, observation. A [Tree] says what there is; a [Server] serves it to the peers of one worker.
//
//	exchange.Endpoint ─► Server.Serve ─► path ─► conditions ─► Block1 assembled ─► method ─► Request.Answer
//	                                                              │                            │ first block, the rest on request
//	                                                              └─ 2.31, until complete      └─ separately (Separate), later (Defer)
//	Topic.Changed ─► Server.Tick ─► the observer's request is executed again ─► notification
//
// A method is a function that answers its [Request] before it returns. What it answers may be longer than a message: the
// Server sends the block that the client requests. For the next block of a GET or FETCH the method is called again. The
// answer to another method is stored, because executing that again would change something again, unless the [Resource] is
// Repeatable.
//
// Block1 (RFC 7959) is assembled by peer and cache key, Request-Tag included (RFC 9175 section 3.3), never by token. An
// observer (RFC 7641) is a stored request; each notification is its answer at that time.
//
// Nothing here has a clock, a socket or a goroutine, and one goroutine at a time uses a Server and its Sessions. A Tree does
// not change while it is served, and several Servers share it: methods of one resource run on several workers at a time and
// guard their own state. [Topic] is safe from any goroutine.
//
// Bounds, each counted in [Counters] when it is reached: Config.MaxBody bytes of a body in blocks; [MaxTransfers] bodies and
// Config.MaxBytes per Server, of them [TransfersPerPeer] of a peer; Config.MaxObservers observers, [ObserversPerPeer] of a peer,
// each with a request of at most [MaxObserved] bytes. When a table is full, the entries of peers whose address is not proven
// make room, in the order of package evict; if there are none, a peer with a proven address replaces the oldest body of
// whoever holds most, and new observers are refused. A body is dropped after [TransferLifetime] without a new block.
package resource
