// Package handover keeps what must outlive a process: its sockets and its records.
//
// It hides a supervisor process that holds a second descriptor of each socket (SCM_RIGHTS over a Unix seqpacket pair),
// starts the serving child again when it dies, and replaces its own binary by exec without letting go of a descriptor;
// and an append-only journal of records in a memfd (held like a socket) or in a file.
//
//	supervisor ──────── starts, restarts ───────► child: serves
//	  │  ▲  name → fd                               │  Hold Drop Take         sockets
//	  │  └────────────── seqpacket, fd 3 ◄──────────┤
//	  └ SIGUSR2: exec itself, fds kept              └─ Put Delete Records ──► journal: memfd or DIR/journal
//
// While no child lives, packets wait in the buffers of the sockets, which are open all the time.
//
// A frame of the journal, little endian, is 36 bytes and a body of at most MaxRecord bytes:
//
//	magic 4 │ kind 1, zero 3 │ length 4 │ sequence 8 │ id 8 │ CRC-32C of the body 4 │ CRC-32C of these 32 bytes 4
//
// Sequences count up by one, so that a damaged journal tells how many frames it lost. A frame cut off at the end is what
// a death in the middle of a write leaves. The journal survives the death of processes, not of the machine: it is
// not synced to the disk per record.
//
// Limits: MaxSockets descriptors, or what the file limit leaves: then Store says ErrFull; MaxRecords records and MaxBytes
// bytes in a journal: then Put is refused and counted. Either way the allocation lives on, but does not survive its
// process. If the supervisor dies, the child goes on alone and says so; nobody restarts it then. Linux only.
//
//	k, err := handover.Open(handover.Options{State: "/var/lib/weir", Log: log})
//	for id, record := range k.Records { … }
//	fd, ok := k.Take("relay/192.0.2.1:49152")
//	k.Ready()
package handover
