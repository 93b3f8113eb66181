// Package tcpscale finds out how many TCP connections a path holds: a server and a client that keep 100,000 and more of
// them, with heartbeats both ways, and say what stands in the way where they cannot.
//
//	parent ──pipes, JSON lines──► worker = one process, one epoll loop, at most nofile − 500 sockets
//	  │ Group: config, ramp, stop          │ Server: accepts, answers heartbeats, evicts
//	  ◄─── Reports: what is new, ≤ 1/s ───┘ Client: ramps, beats, detects, reconnects
//
// No goroutine per connection: state stands in arrays indexed by descriptor (server, 16 B a connection, looked through for
// silence) or by slot (client, 68 B with its timer in a wheel of 100 ms slots). All sockets are raw and non-blocking.
//
// # Wire protocol
//
// Big endian, fixed sizes; every frame begins with 'W' 'T', version 1 and its type.
//
//	1 client hello 40 B  run 8 | client 4 | connection 4 | period ms 4 | misses 1 | mode 1 | zero 14
//	2 server hello 64 B  generation 8 | server id 32 | zone 20
//	3 heartbeat    32 B  seq 4 | ns of the sender 8 | echoed seq 4 | echoed ns 8 | payload bytes that follow 4
//	4 bye           4 B  the close that follows is meant
//	5 evicted      12 B  reason 1 (1: silent) | zero 3 | last heartbeat received 4; the server's last word before its RST
//
// The client says hello when TCP is up and counts a connection as established when the server's hello is there: a
// connection that only sits in an accept queue is not one. Each heartbeat of the client is answered at once with its
// sequence number and time (its own number grows from frame to frame, not by one: it is the worker's); a server that misses one sends its own, so that a loss in one direction is distinguished from a
// loss in both. After misses × period without an echo the client calls the connection silent, the server evicts it:
// by the period that the client announced, never by its own, and says so before it resets. A client that has sent no more
// than the server has received was late itself: it calls that starved, and not evicted. A stream that begins with a zero byte is plain: the
// original tester's one byte per heartbeat, never answered.
//
// # Time
//
// All that is measured is real (monotonic) time, and a heartbeat's latency counts from the tick in which it was due. Only
// silence and timeouts are judged without the time in which the process was stopped (pause.go). Where that was long, the
// report is void.
//
// # Limits
//
// Linux. A worker holds at most what its open-file limit allows. Payload at most 4 KiB a heartbeat. RFC 9293 calls
// what is detected here half-open (section 3.5.1); keep-alive probes of TCP itself (3.8.4) are not used, as they prove
// the kernel's life and not the program's.
package tcpscale
