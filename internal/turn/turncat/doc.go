// Package turncat tunnels what local clients send to one peer behind a TURN server, as STUNner's turncat does: each client
// gets an allocation of its own at the server, and a channel to the peer.
//
// It hides the sockets on both sides, the TURN client (RFC 8656: Allocate, ChannelBind, Refresh, with the long-term
// credential of RFC 8489 section 9.2), the renewal of expiring credentials, and the reaction to a server that disappears.
//
//	UDP clients ──► udpio.Conn ─┐            ┌─ link: udpio.Conn ── UDP ──────────────► TURN      ┌─► peer
//	                            ├─ worker ───┤        one socket for each client       server ────┤
//	TCP, Unix, stdin ─► stream ─┘ owns all   └─ link: stream ────── TCP, TLS, DTLS ───►           └─► relay address
//	TCP, Unix, stdin ─────────────────────── RFC 6062, by pion/turn: bytes to bytes ──► to a TCP peer
//
// A worker is one goroutine that owns its clients, links and sessions, so there is no lock per packet. Between two UDP sockets a
// datagram is read in a batch with four bytes of head room, gets its ChannelData header (RFC 8656 section 12.4) there, and
// is sent in a batch, runs of one length as one segmented send. Streams have a goroutine for each direction, which exchange
// batches with the worker through bounded buffers. A session is a pure state machine: messages and the time go in, messages
// come out.
//
//	 0                   1                   2                   3
//	|    channel number 0x4000      |         length of data        |   no padding over UDP and DTLS,
//	|    data ...                                                   |   up to 4 bytes over TCP and TLS
//
// Each read of a byte stream is one datagram of at most Config.MTU bytes. Limits: Config.MaxClients clients, each with one
// peer; one channel per allocation; a client without traffic in either direction for Config.IdleTimeout is removed.
// While a client has no session, its first few datagrams are held; further ones are dropped and counted. Linux only.
//
//	server, err := turncat.ParseServer("turn://user1:passwd1@192.0.2.1:3478?transport=udp")
//	tunnel, err := turncat.Open(ctx, turncat.Config{Listen: listen, Server: server, Peer: peer, Credentials: credentials})
//	err = tunnel.Run(ctx) // until ctx ends; then every allocation is released
package turncat
