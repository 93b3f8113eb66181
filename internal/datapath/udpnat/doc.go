// Package udpnat is the user-space data path for UDP: a NAT and load balancer that needs no privilege, with faults
// to order and an operator's console.
//
//	client ─► reuse-port socket of a worker ─► faults ─► steer.Engine ─► NAT entry: own outgoing socket ─► backend
//	client ◄─ the same VIP socket, batched  ◄─ faults ◄────────────────── epoll over all entries          ◄─┘
//
// A NAT entry belongs to one flow (client, VIP) and owns one UDP socket, so that each client has an address of its
// own in the eyes of the backends. There is one worker per core and no goroutine per entry; the kernel's hash keeps
// a client on its worker. While reverse address update is off, outgoing sockets are connected: the kernel then drops
// what strangers send, and says at once when no program listens at the backend. With Config.Unconnected, or reverse
// address update on, strangers' datagrams are read, counted as wrong routed and dropped.
//
// Backends are watched passively. One that leaves datagrams unanswered is stale and gets no new flows, and its flows
// move with their next datagram:
//
//	active ──(UnansweredLimit datagrams over UnansweredAfter, or BackendTimeout, without any reply;
//	   ▲      or as many ICMP refusals)──► stale ──BackendTimeout──► probing ──next new flow──► pending
//	   └────────────────────────────────── any reply ───────────────────────────────────────────┘
//	                                       ▲ silence ─────────────────────────────────────────────┘
//
// The last active backend of a service never turns stale. For the quick rule only flows that had an answer before count,
// so that junk, which no server answers, takes no backend down; a flow that never had an answer moves by itself, twice as
// often as there are backends. Where no backend of a service ever answered, only refusals count: its flows are one-way.
//
// With Config.Offload the kernel forwards the datagrams of answered entries (package kernelnat). Whatever changes decisions (a
// snapshot, routes) ends the epoch of all of them: the next datagram of each goes through steering, and the answer to it hands the
// entry to the kernel again. Changes of one entry's socket or backend take it out of the kernel first.
//
// Limits: datagrams up to 65,507 bytes pass whole. MaxEntries bounds the entries; past it new flows are dropped, so that
// a flood takes no living client's entry. Past the process's descriptors or ports, the oldest entry that was idle for a
// second gives way, else the new flow is dropped. All are counted and logged. Datagrams held back for reordering are
// bounded in number and bytes.
//
// Behaviour follows Californium's cf-nat, faults of it excepted.
//
//	dp, err := udpnat.Open(udpnat.Config{Log: slog.Default()})
//	snapshot, err := lb.Compile(spec, nil, udpnat.Caps())
//	err = dp.Apply(snapshot)
//	err = dp.Run(ctx)
package udpnat
