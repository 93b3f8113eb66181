package turncat

import "github.com/weir-lb/weir/internal/workers"

// notice is the kind of a message from another goroutine to the worker.
type notice uint8

const (
	arrived  notice = iota // a client's stream was accepted
	dialed                 // a link's stream is connected, or err says why not
	datagram               // one datagram of a client, or one message of the server
	finished               // a stream's input has ended; err says why, nil: regularly
	begin                  // read the UDP listener from now on
	halt                   // release all allocations and end
)

type entry struct {
	notice notice
	stream *stream
	link   *link
	probe  chan<- error // of arrived: the stream is not a client but a check of the server
	err    error
	n      int // number of bytes in the data block, in order
}

// inboxBytes limits the bytes that streams have read and the worker has not taken; beyond it readers block.
const inboxBytes = 1 << 20

// newInbox returns the mailbox of a worker: entries from the goroutines of streams, with the bytes of their datagrams.
func newInbox(wake func()) *workers.Mailbox[entry] {
	return workers.NewMailbox[entry](workers.Limits{Bytes: inboxBytes}, wake)
}
