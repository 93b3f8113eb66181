package cluster

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
	"github.com/weir-lb/weir/internal/coap/cluster/store"
)

// A process that ends in the middle of a store leaves the line before, without a time that belongs to another one.
func TestALineIsWrittenAtOnce(t *testing.T) {
	m := new(lifeMemory)
	if _, ok := m.line(); ok {
		t.Error("empty memory has a line")
	}
	m.set(lifeLine{boot: 11, term: 1, node: 3})
	first, _ := m.line()
	m.extend(&first, 5*time.Second)
	if got := m.sealUntil(&first); got != 5*time.Second {
		t.Errorf("until %v", got)
	}
	before := *m
	m.set(lifeLine{boot: 11, term: 2, buddyNode: 7, buddyBoot: 22, node: 3})
	second, ok := m.line()
	if !ok || second.term != 2 || second.serial != first.serial+1 {
		t.Fatalf("%+v", second)
	}
	if got := m.sealUntil(&second); got != 0 {
		t.Errorf("the time of another line counts: %v", got)
	}
	after := *m
	from, to := bytesOfMemory(&before), bytesOfMemory(&after)
	for i := range from { // whatever bytes are there already
		torn := before
		copy(bytesOfMemory(&torn), to[:i])
		if got, ok := torn.line(); !ok || got != first && got != second {
			t.Fatalf("after %d bytes: %+v", i, got)
		}
		torn = before
		copy(bytesOfMemory(&torn)[i:], to[i:])
		if got, ok := torn.line(); !ok || got != first && got != second {
			t.Fatalf("from byte %d: %+v", i, got)
		}
	}
}

func bytesOfMemory(m *lifeMemory) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(m)), CopiesMemory)
}

// aloneWith is a node with a store, whose clock is the test's.
func aloneWith(t *testing.T, s Store, now *time.Duration) *Cluster {
	t.Helper()
	c, err := New(Config{
		Nodes: []Node{{ID: 1, DTLS: ":1", Management: "localhost:1"}}, Security: &Security{Secret: []byte("secret")}, Replicate: &Replicate{Store: s},
	}, 1, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	c.replicas.clock = func() time.Duration { return *now }
	return c
}

// The next process of a node is the one before for the store, and another one as a buddy. One that was taken over passes on nothing.
func TestTheNextProcessGoesOn(t *testing.T) {
	now, generation := time.Hour, uint64(5)
	memory := make([]byte, CopiesMemory)
	generations := func() uint64 { return generation }
	first := aloneWith(t, new(store.Memory), &now).replicas
	if first.c.KeepCopies(memory, generations) {
		t.Error("the first process goes on as one before")
	}
	entry := replica.Entry{Owner: first.self, Term: 9, Buddy: replica.Process{Node: 2, Boot: 22}}
	agree := func(r *replicas, e replica.Entry) {
		r.mu.Lock()
		defer r.mu.Unlock()
		out := r.node.Agreed(e, now)
		r.applyLocked(&out)
	}
	agree(first, entry)
	now += time.Second
	next := aloneWith(t, new(store.Memory), &now).replicas
	if !next.c.KeepCopies(memory, generations) || next.self != first.self || next.boot == first.boot {
		t.Fatalf("process %v goes on as %v", first.self, next.self)
	}
	if life, serves := next.c.Serving(); !serves || time.Duration(life.Until.Load()) != now+2*time.Second {
		t.Errorf("serves %v, until %v", serves, time.Duration(life.Until.Load()))
	}
	if term, buddy := next.node.Line(); term != 9 || buddy != entry.Buddy {
		t.Errorf("term %d, buddy %v", term, buddy)
	}
	generation = 8
	agree(next, replica.Entry{Owner: first.self, Term: 10, Taken: true, By: entry.Buddy})
	if next.self == first.self || next.line.floor != 8 {
		t.Errorf("%v goes on as %v, floor %d", first.self, next.self, next.line.floor)
	}
	last := aloneWith(t, new(store.Memory), &now).replicas
	if !last.c.KeepCopies(memory, generations) || last.self != next.self || last.line.floor != 8 {
		t.Errorf("%v goes on as %v, floor %d", next.self, last.self, last.line.floor)
	}
}

// Any node deletes the entries that no node needs, and no others.
func TestEntriesAreDeleted(t *testing.T) {
	now := time.Hour
	s := new(store.Memory)
	r := aloneWith(t, s, &now).replicas
	change := func(c replica.Change) {
		t.Helper()
		e, err := s.Change(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		r.read(e)
	}
	process := func(node uint8, boot uint64) replica.Process { return replica.Process{Node: node, Boot: boot} }
	buddy := process(9, 9)
	change(replica.Change{Owner: r.self, Buddy: buddy})
	change(replica.Change{Owner: process(1, 7), Buddy: buddy})           // an earlier process of this node
	change(replica.Change{Owner: process(1, 8)})                         // likewise, of which no node has copies
	change(replica.Change{Owner: process(2, 7), Taken: true, By: buddy}) // never comes back
	change(replica.Change{Owner: process(3, 7), Buddy: buddy})           // is up
	change(replica.Change{Owner: process(4, 7), Buddy: process(5, 1)})   // has gone with its buddy
	left := func(after time.Duration, want ...replica.Process) {
		t.Helper()
		now += after
		r.mu.Lock()
		r.seen[3] = now
		r.mu.Unlock()
		r.sweep(t.Context())
		for owner, known := range map[replica.Process]bool{r.self: true, process(1, 7): false, process(1, 8): false, process(2, 7): false, process(3, 7): false, process(4, 7): false} {
			for _, w := range want {
				known = known || owner == w
			}
			e, err := s.Change(t.Context(), replica.Change{Owner: owner, Term: 1 << 40})
			if err != nil {
				t.Fatal(err)
			}
			if gone := e.Taken && e.By == (replica.Process{}); gone == known {
				t.Errorf("after %v: the entry of %v is there: %v", now-time.Hour, owner, !gone)
			}
			r.read(e) // as its followers do
		}
	}
	left(deleteIdle-1, process(1, 7), process(1, 8), process(2, 7), process(3, 7), process(4, 7))
	left(1, process(1, 7), process(2, 7), process(3, 7), process(4, 7))
	left(deleteAny-deleteIdle, process(3, 7), process(4, 7))
	left(deleteGone-deleteAny-1, process(3, 7), process(4, 7))
	left(1, process(3, 7))
	for boot := range uint64(manyEntries) {
		change(replica.Change{Owner: process(6, boot+1), Taken: true, By: buddy})
	}
	left(deleteIdle, process(3, 7))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	count := 0
	_ = s.Follow(ended, func(replica.Entry) { count++ }) // all entries first
	if count != 2 {
		t.Errorf("%d entries are left", count)
	}
}
