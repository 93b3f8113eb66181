// Package handover stores what must outlive a process: its sockets and its records.
//
// It hides a supervisor process that holds a duplicate descriptor of each socket (SCM_RIGHTS over a Unix seqpacket pair),
// restarts the serving child when it ends, and replaces its own binary by exec without closing a descriptor;
// and an append-only journal of records in a memfd (held like a socket) or in a file.
//
//	supervisor ──────── starts, restarts ───────► child: serves
//	  │  ▲  name → fd                               │  Hold Drop Take         sockets
//	  │  └────────────── seqpacket, fd 3 ◄──────────┤
//	  └ SIGUSR2: exec itself, fds stay open         └─ Put Delete Records ──► journal: memfd or DIR/journal
//
// systemd's descriptor store takes the supervisor's place in a service of Type=notify that was started without a
// supervisor: FDSTORE and FDSTOREREMOVE instead of Hold and Drop, LISTEN_FDS at the start, SIGUSR2 to hand over.
//
// While no child runs, packets are queued in the buffers of the sockets, which stay open all the time.
//
// A frame of the journal, little endian, is 36 bytes and a body of at most MaxRecord bytes:
//
//	magic 4 │ kind 1, zero 3 │ length 4 │ sequence 8 │ id 8 │ CRC-32C of the body 4 │ CRC-32C of these 32 bytes 4
//
// Sequence numbers increase by one, so that a damaged journal shows how many frames were lost. A truncated frame at the end is what
// a process that ends in the middle of a write leaves. The journal survives the death of processes, but not of the machine: it is
// not synced to the disk per record.
//
// Limits: MaxSockets descriptors, or what the file limit allows: beyond it Hold returns ErrFull; MaxRecords records and MaxBytes
// bytes in a journal: beyond it Put is refused and counted. In both cases the session continues, but does not survive its
// process. If the supervisor ends, the child continues alone and logs it; nothing restarts the child then. Linux only.
//
//	k, err := handover.Open(handover.Options{State: "/var/lib/weir", Log: log})
//	for id, record := range k.Records { … }
//	fd, ok := k.Take("relay/192.0.2.1:49152")
//	k.Ready()
package handover
