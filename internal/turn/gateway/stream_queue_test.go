package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestQueueKeepsOrderAndPads writes at both speeds: all messages arrive once, in order, padded.
func TestQueueKeepsOrderAndPads(t *testing.T) {
	ours, theirs := net.Pipe()
	q := newOutQueue(new(blockPool))
	done := make(chan error, 1)
	go func() { done <- q.run(ours, false); _ = ours.Close() }()
	var want []byte
	go func() {
		for i := range 1000 {
			payload := bytes.Repeat([]byte{byte(i)}, i%37)
			q.add(channelFrame(0x4000, payload)[:4], payload)
			if i%5 == 0 {
				q.flush()
			}
		}
		q.flush()
		q.end()
	}()
	for i := range 1000 {
		want = append(want, channelFrame(0x4000, bytes.Repeat([]byte{byte(i)}, i%37))...)
	}
	got, err := io.ReadAll(theirs)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := q.queued.Load(); n != 0 {
		t.Errorf("%d bytes are counted as queued", n)
	}
}

// TestQueueCutsWhoDoesNotRead: a client that takes no byte is cut after writeTimeout, and the worker never waits.
func TestQueueCutsWhoDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		q := newOutQueue(new(blockPool))
		done := make(chan error, 1)
		go func() { done <- q.run(ours, false) }()
		payload := make([]byte, 1000)
		refused := 0
		for range 1000 {
			if !q.room(len(payload), queueBytes) {
				refused++
				continue
			}
			q.add(nil, payload)
			q.flush()
		}
		if refused != 1000-queueBytes/1000 {
			t.Errorf("%d refused of 1000 kB with a bound of %d", refused, queueBytes)
		}
		start := time.Now()
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the writer ended with %v", err)
		}
		if waited := time.Since(start); waited != writeTimeout {
			t.Errorf("cut after %v", waited)
		}
	})
}

func TestQueueByMessage(t *testing.T) {
	q := newOutQueue(new(blockPool))
	w := &messageWriter{}
	messages := [][]byte{stunFrame(0), channelFrame(0x4001, []byte("x")), channelFrame(0x4002, make([]byte, 1200))}
	for _, m := range messages {
		q.add(m, nil)
	}
	q.flush()
	q.end()
	if err := q.run(w, true); err != nil {
		t.Fatal(err)
	}
	if len(w.writes) != len(messages) {
		t.Fatalf("%d writes for %d messages", len(w.writes), len(messages))
	}
	for i := range messages {
		if !bytes.Equal(w.writes[i], messages[i]) {
			t.Errorf("message %d differs", i)
		}
	}
}

func TestQueueCutLeavesTheRest(t *testing.T) {
	q := newOutQueue(new(blockPool))
	q.add(stunFrame(0), nil)
	q.flush()
	q.stop(true)
	w := &messageWriter{}
	if err := q.run(w, false); err != nil || len(w.writes) != 0 {
		t.Errorf("%d writes after the cut, %v", len(w.writes), err)
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	q := newOutQueue(new(blockPool))
	w := &messageWriter{discard: true}
	payload := make([]byte, 160)
	allocs := testing.AllocsPerRun(1000, func() {
		for range 16 {
			q.add(payload[:4], payload)
		}
		q.flush()
		b := q.take()
		if err := q.write(w, b.b, false); err != nil {
			t.Fatal(err)
		}
		q.queued.Add(-int64(len(b.b)))
		q.blocks.put(b)
	})
	if allocs >= 1 {
		t.Errorf("%v allocations for 16 messages", allocs)
	}
}

// messageWriter keeps every write.
type messageWriter struct {
	writes  [][]byte
	discard bool
}

func (w *messageWriter) Write(b []byte) (int, error) {
	if !w.discard {
		w.writes = append(w.writes, bytes.Clone(b))
	}
	return len(b), nil
}

func (w *messageWriter) SetWriteDeadline(time.Time) error { return nil }
