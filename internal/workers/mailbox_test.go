package workers_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weir-lb/weir/internal/workers"
)

// Messages and their bytes arrive in order; the worker is woken once for each time that the mailbox is filled.
func TestMailboxKeepsOrderAndWakesWhenFilled(t *testing.T) {
	woken := 0
	b := workers.NewMailbox[int](workers.Limits{}, func() { woken++ })
	for round := range 3 {
		if b.Waiting() {
			t.Error("waiting before the first message")
		}
		b.Put(2, []byte("ab")...)
		b.Put(0)
		b.PutAll([]int{1, 3}, []byte("cdef")...)
		messages, data := b.Take()
		if !slices.Equal(messages, []int{2, 0, 1, 3}) || string(data) != "abcdef" || woken != round+1 {
			t.Fatalf("%v %q, woken %d times", messages, data, woken)
		}
		if messages, data := b.Take(); len(messages)+len(data) > 0 {
			t.Errorf("%v %q again", messages, data)
		}
	}
}

func TestMailboxRefusesBeyondItsLimits(t *testing.T) {
	b := workers.NewMailbox[int](workers.Limits{Messages: 3, Bytes: 4}, func() {})
	if !b.Put(1, []byte("abcde")...) || b.Put(2, 'f') || !b.Put(3) || !b.Put(4) || b.Put(5) {
		t.Error("want the first one, the last one that may exceed the limit, then messages without bytes up to the limit")
	}
	if messages, data := b.Take(); !slices.Equal(messages, []int{1, 3, 4}) || string(data) != "abcde" {
		t.Errorf("%v %q", messages, data)
	}
	b.End()
	if b.Put(1) || b.PutAll([]int{1}) {
		t.Error("accepted after the end")
	}
}

// PutAll waits for space, and for nothing longer than the end.
func TestMailboxBlocksUntilThereIsSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := workers.NewMailbox[int](workers.Limits{Bytes: 1}, func() {})
		b.Put(1, 'a')
		var done []bool
		var senders sync.WaitGroup
		senders.Go(func() {
			done = append(done, b.PutAll([]int{2}, 'b'))
			done = append(done, b.PutAll([]int{3}, 'c'))
		})
		synctest.Wait()
		if len(done) != 0 {
			t.Fatal("did not wait for space")
		}
		b.Take()
		synctest.Wait()
		if len(done) != 1 {
			t.Fatalf("%v after Take", done)
		}
		if messages, _ := b.Take(); messages[0] != 2 {
			t.Fatalf("took %v", messages)
		}
		synctest.Wait()
		b.Take()
		b.Put(4, 'd')
		senders.Wait()
		senders.Go(func() { done = append(done, b.PutAll([]int{5}, 'e')) })
		synctest.Wait()
		b.End()
		senders.Wait()
		if !slices.Equal(done, []bool{true, true, false}) {
			t.Errorf("%v, want two accepted and one that the end refused", done)
		}
	})
}

// Many senders and one worker lose nothing, and bytes stay with their message.
func TestMailboxUnderContention(t *testing.T) {
	const senders, each = 4, 2000
	wake := make(chan struct{}, 1)
	b := workers.NewMailbox[byte](workers.Limits{Bytes: 1000}, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	var group sync.WaitGroup
	for s := range byte(senders) {
		group.Go(func() {
			for range each {
				b.PutAll([]byte{s}, bytes.Repeat([]byte{s}, int(s)+1)...)
			}
		})
	}
	var got [senders]int
	for sum := 0; sum < senders*each; {
		<-wake
		messages, data := b.Take()
		for _, s := range messages {
			if !bytes.Equal(data[:s+1], bytes.Repeat([]byte{s}, int(s)+1)) {
				t.Fatalf("message of %d has bytes %v", s, data[:s+1])
			}
			data = data[s+1:]
			got[s]++
			sum++
		}
	}
	group.Wait()
	if got != [senders]int{each, each, each, each} {
		t.Errorf("got %v of each sender", got)
	}
}

func TestMailboxAllocatesNothing(t *testing.T) {
	b := workers.NewMailbox[int](workers.Limits{}, func() {})
	data := make([]byte, 1000)
	round := func() {
		for range 50 {
			b.Put(1, data...)
			b.PutAll([]int{1, 2}, data...)
		}
		b.Take()
	}
	round()
	round()
	if a := testing.AllocsPerRun(100, round); a != 0 {
		t.Errorf("%v allocations per round", a)
	}
}

// A token refers to its value until Remove; a late token of an earlier value of the same number refers to nothing.
func TestTokens(t *testing.T) {
	var tokens workers.Tokens[*int]
	values := make([]int, 2000)
	all := map[uint64]*int{}
	for i := range values {
		all[tokens.Add(&values[i])] = &values[i]
	}
	if len(all) != len(values) || tokens.At(123456) != nil || tokens.At(workers.OwnTokens) != nil {
		t.Fatalf("%d tokens for %d values, or a value of a token that was never given", len(all), len(values))
	}
	var late uint64
	for token, value := range all {
		if tokens.At(token) != value || tokens.Value(workers.Number(token)) != value || token >= workers.OwnTokens {
			t.Fatalf("token %#x", token)
		}
		late = token
	}
	for range 5 {
		tokens.Remove(late)
		other := tokens.Add(&values[0])
		if workers.Number(other) != workers.Number(late) || tokens.At(late) != nil || tokens.At(other) != &values[0] {
			t.Fatalf("token %#x after %#x", other, late)
		}
		late = other
	}
	tokens.Remove(late)
	n := 0
	for value := range tokens.All {
		if n++; value == nil {
			t.Error("a value that is not in use")
		}
	}
	if n != len(values)-1 || tokens.Size() != len(values) {
		t.Errorf("%d values and %d numbers", n, tokens.Size())
	}
}

// BenchmarkMailbox is the cost of 32 messages with 200 bytes each, and of one look into an empty mailbox.
func BenchmarkMailbox(b *testing.B) {
	data := make([]byte, 200)
	b.Run("32x200", func(b *testing.B) {
		m := workers.NewMailbox[int](workers.Limits{Messages: 256}, func() {})
		b.ReportAllocs()
		for range b.N {
			for i := range 32 {
				m.Put(i, data...)
			}
			m.Take()
		}
	})
	b.Run("empty", func(b *testing.B) {
		m := workers.NewMailbox[int](workers.Limits{Messages: 256}, func() {})
		for range b.N {
			m.Take()
		}
	})
}
