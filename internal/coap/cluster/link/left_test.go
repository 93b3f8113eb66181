package link

import (
	"bytes"
	"testing"
	"time"
	"unsafe"
)

// frame is a header and a body that a code covers.
func frame() (header, body []byte) {
	return []byte{63, 1, 2, 4, 192, 0, 2, 9}, bytes.Repeat([]byte{7}, 40)
}

// passes reports whether a frame of one node is accepted by another one now.
func passes(from, to *node) bool {
	header, body := frame()
	send, receive := from.peers[to.addr], to.peers[from.addr]
	if send == nil || receive == nil || send.Keys() == nil || receive.Keys() == nil {
		return false
	}
	code := send.Keys().Sum(header, body)
	return receive.Keys().Verify(header, code[:], body)
}

// Frames pass in both directions as soon as a node is restarted, and in each step until the nodes have new sessions, after which the keys of the
// process before end. Without the memory none pass at first.
func TestFramesPassAfterARestart(t *testing.T) {
	for name, kept := range map[string]bool{"kept": true, "not kept": false} {
		w := newNetwork(t)
		memory := make([]byte, MemoryBytes)
		start := func() *node {
			n := w.add(1, nil)
			if kept {
				n.Keep(memory, w.now)
			}
			return n
		}
		one, two := start(), w.add(2, nil)
		one.Peer(two.addr, true)
		two.Peer(one.addr, true)
		w.run(5 * time.Second)
		if !passes(one, two) || !passes(two, one) {
			t.Fatalf("%s: no frames pass", name)
		}
		for range 3 { // restarts
			one = start()
			one.Peer(two.addr, true)
			if passes(one, two) != kept || passes(two, one) != kept {
				t.Errorf("%s: frames pass after a restart: %v, %v", name, passes(one, two), passes(two, one))
			}
			for range 8 {
				w.run(TickEvery)
				if kept && (!passes(one, two) || !passes(two, one)) {
					t.Errorf("%s: frames do not pass while there are new sessions", name)
				}
			}
		}
		w.run(2 * leftLife)
		if p := one.peers[two.addr]; !passes(one, two) || !passes(two, one) || p.before != nil || len(p.Keys().before) > 0 {
			t.Errorf("%s: the keys of the process before have not ended", name)
		}
		one.Forget(two.addr)
		if kept && bytes.ContainsFunc(memory, func(r rune) bool { return r != 0 }) {
			t.Error("the keys of a forgotten node stay in the memory")
		}
	}
}

// Memory that is damaged has no keys, and a node too many has no entry.
func TestLeftKeysAreChecked(t *testing.T) {
	w := newNetwork(t)
	memory := make([]byte, MemoryBytes)
	one, two := w.add(1, nil), w.add(2, nil)
	one.Keep(memory, 0)
	one.Peer(two.addr, true)
	two.Peer(one.addr, true)
	w.run(5 * time.Second)
	for i := range leftEntry {
		damaged := bytes.Clone(memory)
		for at := i; at < len(damaged); at += leftEntry {
			if damaged[at-i] != 0 || damaged[at-i+1] != 0 || damaged[at-i+2] != 0 || damaged[at-i+3] != 0 {
				damaged[at] ^= 4
			}
		}
		again := w.add(3, nil)
		if again.Keep(damaged, 0); len(again.left) > 0 {
			t.Fatalf("byte %d is damaged, and the keys are taken", i)
		}
		delete(w.nodes, again.addr)
	}
	if again := w.add(3, nil); len(again.left) > 0 {
		t.Error("keys without memory")
	} else if again.Keep(memory, 0); len(again.left) != 1 {
		t.Errorf("%d nodes have keys", len(again.left))
	}
}

// FuzzKeep: no memory ends a process.
func FuzzKeep(f *testing.F) {
	f.Add(make([]byte, leftEntry))
	f.Fuzz(func(t *testing.T, b []byte) {
		memory := make([]byte, MemoryBytes)
		copy(memory, b)
		newNetwork(t).add(1, nil).Keep(memory, 0)
		k := new(leftKeys) // also with a right sum
		raw := unsafe.Slice((*byte)(unsafe.Pointer(k)), leftEntry)
		copy(raw, b)
		k.sum = k.checksum()
		copy(memory, raw)
		newNetwork(t).add(1, nil).Keep(memory, 0)
	})
}
