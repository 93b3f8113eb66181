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
// Everything of a session belongs to one worker. Every method of Handler,
// Cluster, Worker and Peer is called on that worker's goroutine, unless it says
// otherwise.
package engine
