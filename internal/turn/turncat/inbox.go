package turncat

import "sync"

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

// inbox passes batches from the goroutines of streams to the worker. Its memory is reused, so that no datagram
// allocates.
type inbox struct {
	wake func()

	mu      sync.Mutex
	room    sync.Cond
	entries []entry
	data    []byte
	ended   bool
}

func newInbox(wake func()) *inbox {
	b := &inbox{wake: wake}
	b.room.L = &b.mu
	return b
}

// post adds one entry without data.
func (b *inbox) post(e entry) {
	b.mu.Lock()
	b.entries = append(b.entries, e)
	b.mu.Unlock()
	b.wake()
}

// put adds datagrams of a stream: split returns where each ends in data. It blocks while the inbox is full, and
// returns false if the worker has ended.
func (b *inbox) put(s *stream, data []byte, split func(data []byte) (n, total int)) (rest []byte, ok bool) {
	b.mu.Lock()
	for len(b.data) >= inboxBytes && !b.ended {
		b.room.Wait()
	}
	first := len(b.entries) == 0
	for !b.ended {
		n, total := split(data)
		if total == 0 {
			break
		}
		b.data = append(b.data, data[:n]...)
		b.entries = append(b.entries, entry{notice: datagram, stream: s, n: n})
		data = data[total:]
	}
	ok, first = !b.ended, first && len(b.entries) > 0
	b.mu.Unlock()
	if first {
		b.wake()
	}
	return data, ok
}

// take swaps what came for the worker's emptied slices.
func (b *inbox) take(entries []entry, data []byte) ([]entry, []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := len(b.data) >= inboxBytes
	entries, b.entries = b.entries, entries[:0]
	data, b.data = b.data, data[:0]
	if full {
		b.room.Broadcast()
	}
	return entries, data
}

// end unblocks the readers. The worker no longer takes from the inbox.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.room.Broadcast()
}
