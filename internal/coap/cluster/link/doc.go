// Package link secures the management link of a CoAP/DTLS cluster: DTLS sessions between nodes, with one pre-shared key for all of
// them, and the keys of the code that authenticates frames.
//
//	pings and pongs   -> Send    -> DTLS application data -> Receive
//	frames (62, 63)   -> Keys.Sum -> 8 bytes behind the header -> Keys.Verify
//
// Either node may begin a handshake, and both at once: two nodes of Weir then have two sessions for a while, and accept what comes in
// either. Californium's nodes have one session for each address; there one of two simultaneous handshakes fails, and is made again
// after a random time.
//
// A node keeps the keys of an earlier session for [overlap] after it has a newer one, and begins to use the newer one once the other
// node has shown that it has it. So nothing is lost while keys change, which they do once a day (RFC 5246 has no such limit; it bounds
// for how long a stolen key is of use).
//
// Frames are authenticated, not encrypted: they carry DTLS records of clients. The code covers the header, which names the client, and
// up to 64 bytes of the record; it has no counter, so that a frame can be repeated.
//
// The keys of frames, not the sessions, outlive a process in memory that the caller holds ([Links.Keep]): frames that wait for the next process, and
// those until it has made new sessions, are not lost.
//
// Package link has no socket, goroutine or clock. Any goroutine may call its methods. The keys are read without a lock, for every
// frame; everything else is rare and takes one.
package link
