package udpio

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadJournal is memory that outlives the process (shared, such as that of a memfd), into which a Conn reads. When the process is killed, Left
// of the next one returns what it had read and not handled: the kernel itself writes buffers, addresses and lengths there, so that also what a
// killed process had received in its last system call is not lost.
//
//	layout, state │ headers, names and control messages of recvmmsg │ buffers
//
// state is one word: how many datagrams, which one is next, and, in its highest bit, that a read is under way. In a read, those have come whose length
// the kernel has set.
type ReadJournal struct {
	batch, size int
	head        *journalHead
	reader      *Reader
	buffers     []byte
}

type journalHead struct{ layout, state uint64 }

const (
	journalVersion = 1
	journalPage    = 4096
	journalReading = 1 << 63
)

func journalLayout(batch, size int) uint64 {
	return journalVersion<<56 | uint64(unsafe.Sizeof(mmsghdr{}))<<48 | uint64(batch)<<32 | uint64(size)
}

func journalTables(batch int) int {
	n := 64 + batch*(int(unsafe.Sizeof(mmsghdr{}))+int(unsafe.Sizeof(sockaddr{}))+readControlSize)
	return (n + journalPage - 1) / journalPage * journalPage
}

// ReadJournalBytes is how much memory a journal needs for batches of so many datagrams of at most size bytes.
func ReadJournalBytes(batch, size int) int {
	return journalTables(batch) + (batch*size+journalPage-1)/journalPage*journalPage
}

// OpenReadJournal uses memory of ReadJournalBytes, aligned to 8 bytes. What a process before has left in it stays until Left is called.
func OpenReadJournal(memory []byte, batch, size int) *ReadJournal {
	j := &ReadJournal{batch: batch, size: size, head: (*journalHead)(unsafe.Pointer(&memory[0])), buffers: memory[journalTables(batch):]}
	at := 64
	r := &Reader{iovecs: make([]unix.Iovec, batch), state: &j.head.state}
	r.headers = unsafe.Slice((*mmsghdr)(unsafe.Pointer(&memory[at])), batch)
	at += batch * int(unsafe.Sizeof(mmsghdr{}))
	r.names = unsafe.Slice((*sockaddr)(unsafe.Pointer(&memory[at])), batch)
	at += batch * int(unsafe.Sizeof(sockaddr{}))
	r.control = memory[at : at+batch*readControlSize]
	j.reader = r
	return j
}

// Left returns, copied, what the process before has read and not handled, and makes the journal ready for this one.
func (j *ReadJournal) Left() (left []Message) {
	if j.head.layout == journalLayout(j.batch, j.size) {
		state := j.head.state
		first, n := int(state&^journalReading>>32), int(state&(1<<32-1))
		for i := first; i < min(n, j.batch); i++ {
			length := int(j.reader.headers[i].Len)
			if length == 0 || length > j.size {
				continue // it has not come
			}
			m := Message{Buf: append([]byte(nil), j.buffers[i*j.size:i*j.size+length]...)}
			j.reader.take(&m, i)
			left = append(left, m)
		}
	}
	j.head.state = 0
	j.reader.prepare(true)
	j.head.layout = journalLayout(j.batch, j.size)
	return left
}

// Messages are the buffers to read into: those with which ReadBatch is to be called, from the first one on.
func (j *ReadJournal) Messages() []Message {
	all := make([]Message, j.batch)
	for i := range all {
		all[i].Buf = j.buffers[i*j.size : (i+1)*j.size : (i+1)*j.size]
	}
	return all
}

// Handling stores that of n datagrams those before next are handled or being handled. It is to be called before a datagram is handled, so that one
// that ends a process does not end the next one.
func (j *ReadJournal) Handling(next, n int) {
	atomic.StoreUint64(&j.head.state, uint64(next)<<32|uint64(n))
}

// ReadBy has the Conn read into a journal of its Config.Batch. It is to be called after Left, and before the first read.
func (c *Conn) ReadBy(j *ReadJournal) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	c.read = j.reader
}
