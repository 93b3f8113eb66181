package replica

import (
	"bytes"
	"runtime"
	"testing"
	"time"
)

// pair is an owner and its buddy, without a network.
type pair struct {
	t            *testing.T
	owner, buddy *Node
	slot         [2][]byte
	now          time.Duration
}

func newPair(t *testing.T, sessions, copies int) *pair {
	p := &pair{t: t, slot: [2][]byte{[]byte("keys"), []byte("window")}}
	p.owner = New(Config{Self: Process{1, 11}, Sessions: sessions, Slot: func(uint64) (static, changing []byte) { return p.slot[0], p.slot[1] }})
	p.buddy = New(Config{Self: Process{2, 22}, Sessions: sessions, Copies: copies})
	return p
}

// register makes the buddy the buddy.
func (p *pair) register() {
	o := p.owner.Tick(p.now, []Peer{{p.buddy.cfg.Self, true}})
	if len(o.Changes) != 1 || o.Changes[0] != (Change{Owner: p.owner.cfg.Self, Buddy: p.buddy.cfg.Self}) {
		p.t.Fatalf("%+v", o)
	}
	p.exchange(p.owner.Agreed(Entry{Owner: p.owner.cfg.Self, Term: 5, Buddy: p.buddy.cfg.Self}, p.now))
}

// exchange carries messages of the owner and their answers until there are none.
func (p *pair) exchange(o Output) (all Output) {
	for queue := []Output{o}; len(queue) > 0; queue = queue[1:] {
		all.Limits = append(all.Limits, queue[0].Limits...)
		all.Removed = append(all.Removed, queue[0].Removed...)
		for _, s := range queue[0].Send {
			answer, ok := p.buddy.Receive(1, s.Bytes, p.now)
			if !ok || s.To != 2 {
				p.t.Fatalf("not a batch for the buddy: %+v", s)
			}
			for _, a := range answer.Send {
				back, _ := p.owner.Receive(2, a.Bytes, p.now)
				queue = append(queue, back)
			}
		}
	}
	return all
}

// takeOver lets the owner die.
func (p *pair) takeOver() Output {
	p.now += Hold
	o := p.buddy.Tick(p.now, nil)
	want := Change{Owner: p.owner.cfg.Self, Term: 5, Taken: true, By: p.buddy.cfg.Self}
	if len(o.Changes) != 1 || o.Changes[0] != want {
		p.t.Fatalf("%+v", o)
	}
	return p.buddy.Agreed(Entry{Owner: want.Owner, Term: 9, Taken: true, By: want.By}, p.now)
}

func TestTakeOver(t *testing.T) {
	p := newPair(t, 10, 10)
	number, limit, ok := p.owner.Add(3)
	if !ok || limit != 3+Lease {
		t.Fatal(number, limit, ok)
	}
	p.register()
	if o := p.exchange(p.owner.Used(number, 3+Lease/2-1)); len(o.Limits) > 0 {
		t.Errorf("a lease of which less than half is used was extended: %+v", o)
	}
	o := p.exchange(p.owner.Used(number, 3+Lease/2))
	if len(o.Limits) != 1 || o.Limits[0] != (Limit{number, 3 + Lease/2 + Lease}) {
		t.Fatalf("%+v", o)
	}
	p.slot[1] = []byte("another window")
	p.owner.Changed(number)
	p.exchange(p.owner.Tick(p.now, []Peer{{p.buddy.cfg.Self, true}}))
	o = p.takeOver()
	if len(o.Restored) != 1 {
		t.Fatalf("%+v", o)
	}
	r := o.Restored[0]
	if r.Start != 3+Lease/2+Lease || r.Limit != r.Start+Lease || string(r.Static) != "keys" || string(r.Changing) != "another window" || r.From != p.owner.cfg.Self {
		t.Errorf("%+v", r)
	}
	if !p.buddy.NeedsFreshness(r.Number) {
		t.Error("a request that is repeated by an attacker would be executed")
	}
	if again := p.buddy.Agreed(Entry{Owner: p.owner.cfg.Self, Term: 9, Taken: true, By: p.buddy.cfg.Self}, p.now); len(again.Restored) > 0 {
		t.Errorf("restored again: %+v", again)
	}
	if back := p.owner.Agreed(Entry{Owner: p.owner.cfg.Self, Term: 9, Taken: true, By: p.buddy.cfg.Self}, p.now); len(back.Dropped) != 1 || !p.owner.Fenced() || p.owner.SealUntil() > -1 {
		t.Errorf("the owner has not dropped it: %+v", back)
	}
	if _, _, ok := p.owner.Add(1); ok {
		t.Error("a process that was taken over takes another session")
	}
}

// A session near the end of its sequence numbers has no range left that is certain to be unused.
func TestSpentSessionsAreNotRestored(t *testing.T) {
	p := newPair(t, 10, 10)
	p.owner.Add(MaxSequence - 5)
	p.register()
	if o := p.takeOver(); len(o.Restored) > 0 || len(o.Events) != 2 || o.Events[1] != (Event{NoRoom, 1, 1}) {
		t.Errorf("%+v", o)
	}
}

// The bounds of both tables hold; what has no copy goes on, and is offered again when there may be room.
func TestBounds(t *testing.T) {
	p := newPair(t, 3, 2)
	var numbers []uint64
	for range 3 {
		number, _, _ := p.owner.Add(0)
		numbers = append(numbers, number)
	}
	if _, _, ok := p.owner.Add(0); ok {
		t.Error("a fourth session of three")
	}
	p.register()
	if _, copies := p.buddy.Len(); copies != 2 || p.owner.Unacknowledged() != 1 {
		t.Fatalf("%d copies, %d sessions without", copies, p.owner.Unacknowledged())
	}
	if o := p.owner.Used(numbers[2], Lease); len(o.Limits) != 1 || o.Limits[0].Limit != 2*Lease {
		t.Errorf("a session that no node can restore has to stop: %+v", o)
	}
	if o := p.exchange(p.owner.Remove(numbers[0])); len(o.Removed) != 1 {
		t.Fatalf("%+v", o)
	}
	p.now += retryAfter
	p.exchange(p.owner.Tick(p.now, []Peer{{p.buddy.cfg.Self, true}}))
	if p.owner.Unacknowledged() != 0 {
		t.Error("the refused session was not offered again")
	}
}

// A buddy that has asked to take over acknowledges nothing until the engine has answered: an Ack would entitle the owner to go on.
func TestNoAckWhileAsking(t *testing.T) {
	p := newPair(t, 10, 10)
	p.owner.Add(0)
	p.register()
	p.now += Hold
	p.buddy.Tick(p.now, nil)
	o := p.owner.Tick(p.now, []Peer{{p.buddy.cfg.Self, true}})
	if len(o.Send) != 1 {
		t.Fatalf("%+v", o)
	}
	if o, ok := p.buddy.Receive(1, o.Send[0].Bytes, p.now); !ok || len(o.Send) > 0 {
		t.Errorf("%v, %+v", ok, o)
	}
	if p.now < p.owner.SealUntil() {
		t.Error("the owner goes on")
	}
	p.buddy.Agreed(Entry{Owner: p.owner.cfg.Self, Term: 7, Buddy: p.buddy.cfg.Self}, p.now) // the owner was earlier
	p.exchange(p.owner.Agreed(Entry{Owner: p.owner.cfg.Self, Term: 7, Buddy: p.buddy.cfg.Self}, p.now))
	if p.now >= p.owner.SealUntil() || p.owner.Unacknowledged() > 0 {
		t.Error("the owner has no buddy at its new term")
	}
}

// A refusal that arrives after the session was sent again says nothing: the later batch may have been stored.
func TestLateRefusal(t *testing.T) {
	p := newPair(t, 10, 1)
	first, _, _ := p.owner.Add(0)
	p.register()
	p.now += heartbeatEvery
	second, limit, _ := p.owner.Add(0)
	o := p.owner.Tick(p.now, []Peer{{p.buddy.cfg.Self, true}})
	refused, _ := p.buddy.Receive(1, o.Send[0].Bytes, p.now)
	p.exchange(p.owner.Remove(first))
	p.now += repeatEvery
	o = p.owner.Tick(p.now, []Peer{{p.buddy.cfg.Self, true}})
	stored, _ := p.buddy.Receive(1, o.Send[0].Bytes, p.now)
	p.owner.Receive(2, refused.Send[0].Bytes, p.now)
	if o := p.owner.Used(second, limit); len(o.Limits) > 0 {
		t.Errorf("the limit rises, though the buddy has a copy with the old one: %+v", o)
	}
	p.owner.Receive(2, stored.Send[0].Bytes, p.now)
	if p.owner.Unacknowledged() > 0 {
		t.Error("the copy is not known")
	}
}

// A process that goes on as the one before it has none of that one's copies: it takes no batches that were meant for it, and so gets another term.
func TestCopiesDoNotOutliveTheBuddy(t *testing.T) {
	p := newPair(t, 10, 10)
	p.owner.Add(0)
	p.register()
	next := New(Config{Self: p.buddy.cfg.Self, Boot: 33, Sessions: 10, Copies: 10})
	next.Resume(Resume{Now: p.now})
	p.buddy = next
	p.now += 2 * heartbeatEvery
	o := p.owner.Tick(p.now, []Peer{{Process{2, 33}, true}})
	if len(o.Send) != 1 || len(o.Changes) != 1 || o.Changes[0].Buddy != (Process{2, 33}) {
		t.Fatalf("%+v", o)
	}
	if o, ok := next.Receive(1, o.Send[0].Bytes, p.now); !ok || len(o.Send) > 0 || len(next.streams) > 0 {
		t.Errorf("%v, %+v", ok, o)
	}
	p.exchange(p.owner.Agreed(Entry{Owner: p.owner.cfg.Self, Term: 7, Buddy: Process{2, 33}}, p.now))
	if _, copies := next.Len(); copies != 1 || p.owner.Unacknowledged() > 0 {
		t.Errorf("%d copies", copies)
	}
}

// Copies have keys: they are overwritten when they go.
func TestCopiesAreWiped(t *testing.T) {
	for name, end := range map[string]func(p *pair, number uint64){
		"removed":   func(p *pair, number uint64) { p.exchange(p.owner.Remove(number)) },
		"restored":  func(p *pair, _ uint64) { p.takeOver() },
		"discarded": func(p *pair, _ uint64) { p.buddy.Agreed(Entry{Owner: p.owner.cfg.Self, Term: 7}, p.now) },
		"fenced": func(p *pair, _ uint64) {
			p.buddy.Agreed(Entry{Owner: p.buddy.cfg.Self, Term: 8, Taken: true}, p.now)
		},
		"longer": func(p *pair, number uint64) {
			p.slot[1] = []byte("a window that is longer")
			p.owner.Changed(number)
			p.exchange(p.owner.Tick(p.now, []Peer{{p.buddy.cfg.Self, true}}))
		},
	} {
		p := newPair(t, 10, 10)
		number, _, _ := p.owner.Add(0)
		p.register()
		secret := p.buddy.streams[p.owner.cfg.Self].copies[number].bytes
		if string(secret) != "keyswindow" {
			t.Fatalf("the copy is %q", secret)
		}
		end(p, number)
		if !bytes.Equal(secret, make([]byte, len(secret))) {
			t.Errorf("%s: %q is left", name, secret)
		}
	}
}

// When a node goes, only the nodes whose buddy it was choose another one.
func TestChoice(t *testing.T) {
	served := map[uint8]bool{}
	for self := range uint8(10) {
		n := New(Config{Self: Process{self, 1}})
		for id := range uint8(10) {
			n.peers = append(n.peers, Peer{Process{id, 1}, true})
		}
		first := n.choose()
		served[first.Node] = true
		for i := range n.peers {
			n.peers[i].Up = false
			switch got := n.choose(); {
			case got.Node == self || got.Node == uint8(i):
				t.Errorf("node %d chooses %d, without %d", self, got.Node, i)
			case uint8(i) != first.Node && got != first:
				t.Errorf("node %d chooses %d and not %d, for %d is gone", self, got.Node, first.Node, i)
			}
			n.peers[i].Up = true
		}
	}
	if len(served) < 5 {
		t.Errorf("only %d of ten nodes are buddies", len(served))
	}
}

// A session of the arena's size, and what the owner and the buddy know of it, take less than 1 kB at each of the two.
func TestMemoryOfASession(t *testing.T) {
	const sessions = 20_000
	p := newPair(t, sessions, sessions)
	p.slot = [2][]byte{make([]byte, 480), make([]byte, 120)}
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for range sessions {
		p.owner.Add(0)
	}
	owner := (heap() - before) / sessions
	p.register()
	if _, copies := p.buddy.Len(); copies != sessions || p.owner.Unacknowledged() > 0 {
		t.Fatalf("%d copies, %d sessions without", copies, p.owner.Unacknowledged())
	}
	both := (heap() - before) / sessions
	runtime.KeepAlive(p)
	if t.Logf("owner %d bytes, owner and buddy %d", owner, both); owner > 300 || both-owner > 1000 {
		t.Errorf("owner %d bytes besides the arena, owner and buddy %d", owner, both)
	}
}

// Parsers take what was appended, and of other bytes nothing that they would append in another way.
func FuzzParse(f *testing.F) {
	b := batch{boot: 1, to: 2, term: 3, serial: 4, items: []item{
		{number: 5, op: opPut, limit: 6, static: []byte("static"), changing: []byte("changing")},
		{number: 7, op: opChange, limit: MaxSequence, changing: []byte{}},
		{number: 8, op: opRemove},
	}}
	a := ack{owner: 1, boot: 2, term: 3, serial: 4, answers: []answer{{5, resultStored}, {6, resultRefused}}}
	f.Add(b.append(nil))
	f.Add(a.append(nil))
	f.Add([]byte{Type, kindBatch})
	f.Fuzz(func(t *testing.T, message []byte) {
		if m, ok := parseBatch(message); ok && !bytes.Equal(m.append(nil), message) {
			t.Errorf("%x is read as %+v", message, m)
		}
		if m, ok := parseAck(message); ok && !bytes.Equal(m.append(nil), message) {
			t.Errorf("%x is read as %+v", message, m)
		}
		n := New(Config{Self: Process{1, 2}, Sessions: 2, Copies: 2})
		n.Receive(3, message, 1)
		if _, copies := n.Len(); copies > 2 {
			t.Errorf("%d copies", copies)
		}
	})
}
