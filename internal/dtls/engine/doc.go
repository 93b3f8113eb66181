// Package engine serves DTLS 1.2 sessions, or plain UDP peers, from one
// goroutine per core: no goroutine and no lock per session, no allocation per
// request.
//
//	reuse-port socket -> batch read -> walk records -> CID -> own session:
//	  open in place, replay check -> Handler.Serve -> seal behind the head room
//	  of a send slot -> batch write
//	no CID:      handshake, or the session of that address
//	other CID:   Cluster.Foreign (to the owner's node) or another worker's queue
//	link socket: Cluster.Frame -> Worker.Inject or Worker.SendRaw
//
// A session follows its client: the newest record's source is where replies go
// (RFC 9146 section 6). Until the new address is proven, by a return routability
// check (RFC 9853) or by what the Handler accepts as a proof (Worker.Validate),
// at most three times the bytes of UDP payload received from there are sent to
// it. The same holds for plain peers, except on loopback, from their first
// datagram on.
//
// Every table is bounded, and counted in Stats. The comments say what makes room
// when one is full: plain peers at plainPeers, sessions at Worker.makeRoom,
// handshakes under way at halfOpens, sources of forged records at forgers.
// Hand-over between workers holds 256 datagrams. On a wildcard socket 16,384
// slots remember the address that a client of another node has sent to.
//
// A peer that has been silent for RestAfter rests: its keys are not expanded and its Handler may free what it has, until its next
// authentic record. Such a session of the CoAP server takes less than 1 kB.
//
// With Config.Arena sessions outlive the process: see kept.go for what is stored when. Leave ends an engine without ending its sessions.
// Drain ends them one after the other, each behind an answer: see drain.go.
//
// Otherwise the engine never ends a session silently: a session that is evicted, idle for too long, or whose keys are used up receives
// an alert that these keys protect.
//
// Everything of a session belongs to one worker. Every method of Handler,
// Cluster, Worker and Peer is called on that worker's goroutine, unless it says
// otherwise.
package engine
