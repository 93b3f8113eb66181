package turncat

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/udpio"
)

// batch collects the datagrams to the server until flushUp, in order, in one chain for each client. So runs to one socket are sent together
// even if the datagrams of several clients arrived interleaved.
type batch struct {
	messages []udpio.Message
	next     []int32 // the next frame of the same client, -1: none
	touched  []*client
	send     []udpio.Message
	memory   []byte // memory for copies
	staged   int
}

func (b *batch) init() {
	b.messages = make([]udpio.Message, 0, outSlots)
	b.next = make([]int32, outSlots)
	b.touched = make([]*client, 0, outSlots)
	b.send = make([]udpio.Message, 0, outSlots)
	b.memory = make([]byte, stageBytes)
}

// queue adds a finished frame to a client's chain.
func (w *worker) queue(c *client, frame []byte) {
	b := &w.up
	if len(b.messages) == cap(b.messages) {
		w.flushUp(w.t.now())
		if c.link == nil {
			w.counters.gap.Add(1)
			return
		}
	}
	i := int32(len(b.messages))
	b.messages = append(b.messages, udpio.Message{Buf: frame, N: len(frame)})
	b.next[i] = -1
	if c.chained {
		b.next[c.tail] = i
	} else {
		c.chained, c.head = true, i
		b.touched = append(b.touched, c)
	}
	c.tail = i
}

// flushUp sends every chain.
func (w *worker) flushUp(now int64) {
	b := &w.up
	for i, c := range b.touched {
		messages := b.messages
		if len(b.touched) > 1 {
			b.send = b.send[:0]
			for at := c.head; at >= 0; at = b.next[at] {
				b.send = append(b.send, b.messages[at])
			}
			messages = b.send
		}
		c.chained = false
		b.touched[i] = nil
		w.write(c, messages, now)
	}
	b.touched, b.messages, b.staged = b.touched[:0], b.messages[:0], 0
}

// write sends frames over a client's UDP link.
func (w *worker) write(c *client, frames []udpio.Message, now int64) {
	packets, bytes := 0, 0
	retried := false
	for len(frames) > 0 && c.link != nil && c.link.conn != nil {
		n, err := c.link.conn.WriteBatch(frames)
		for i := range frames[:n] {
			bytes += frames[i].N - headerBytes
		}
		packets += n
		frames = frames[n:]
		if err == nil || len(frames) == 0 {
			continue
		}
		if errors.Is(err, unix.ECONNREFUSED) && !retried { // ECONNREFUSED is a response to an earlier datagram
			retried = true
			l := c.link
			w.act(l, l.session.unreachable(now), now)
			continue
		}
		w.counters.errors.Add(1)
		frames = frames[1:]
	}
	if c.link != nil {
		c.link.session.used = true
	}
	w.counters.gap.Add(uint64(len(frames)))
	w.counters.upPackets.Add(uint64(packets))
	w.counters.upBytes.Add(uint64(bytes))
}
