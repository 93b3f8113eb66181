// Package udpio moves UDP datagrams in batches between the kernel and the data paths and servers of Weir.
//
// It hides recvmmsg and sendmmsg, segmentation offload both ways (UDP_SEGMENT, UDP_GRO), the control messages for
// time stamps, drop counters and local addresses, reuse-port groups and their steering programs, and the
// wake-up of a worker that is blocked in the kernel.
//
//	Listen ─► Group ─┬─ Conn 0 ── worker 0      one reuse-port socket per worker; the kernel's hash, or a
//	                 ├─ Conn 1 ── worker 1      classic BPF program (SteerRule), picks the socket
//	                 └─ …
//	Dial   ─► Socket ┐
//	Dial   ─► Socket ┼─► Poller ── worker       many outgoing sockets of one worker in one epoll set
//	Conn             ┘
//	Accept ─► Stream ┘                          TCP clients of a server that mainly serves UDP
//	Bind   ─► Socket ── Reader ─► messages ─► Queues ── Writer ─► Socket, Conn    relays: gathered, nothing copied
//
// A Conn may be read by one goroutine and written by others at the same time. A Socket, a Poller, a Reader
// and a Writer belong to one goroutine, except for Poller.Wake. No call allocates per datagram, except for the zone of an
// IPv6 link-local peer.
//
// Limits: datagrams up to MaxDatagram bytes; MaxBatch messages per call; at most MaxSegments segments in one send.
// Linux only. The constants are those of udp(7), ip(7), ipv6(7) and RFC 768.
//
//	group, err := udpio.Listen(udpio.Config{Addr: netip.MustParseAddrPort("127.0.0.1:5784"), Sockets: 2})
//	conn := group.Conn(0)
//	messages := udpio.NewMessages(64, 2048)
//	for {
//		n, err := conn.ReadBatch(messages, udpio.Forever)
//		if errors.Is(err, udpio.ErrWoken) { /* look at the control queue */ }
//		conn.WriteAll(messages[:n]) // an echo: a Message read is a Message to send back
//	}
package udpio
