package move

import (
	"bytes"
	"testing"
	"time"
)

// pair is a node that takes sessions, and what the other one sends.
type pair struct {
	t    *testing.T
	node *Node
	now  time.Duration
}

const (
	bootHere  = 11
	bootThere = 22
)

func newPair(t *testing.T) *pair {
	p := &pair{t: t, node: New(Config{Self: 2, Boot: bootHere, CIDLength: 6, Workers: 1, Random: func() uint64 { return 99 }})}
	p.tick()
	return p
}

func (p *pair) tick() Output {
	p.now += TickEvery
	return p.node.Tick(p.now, []Peer{{ID: 1, Up: true}}, Local{Room: 100})
}

// receive passes a message of node 1 and returns the one that answers, if there is one.
func (p *pair) receive(m *Message) (answer Message, imports []Import) {
	p.t.Helper()
	o, ok := p.node.Receive(1, m.Append(nil), p.now)
	if !ok {
		p.t.Fatalf("%+v is no message", m)
	}
	if len(o.Send) > 0 {
		answer, _ = Parse(o.Send[0].Bytes)
	}
	return answer, o.Imports
}

func begin(transfer uint64) *Message {
	return &Message{Kind: Begin, Transfer: transfer, Shard: 1, CIDLength: 6, Draining: true, Room: 1, Boot: bootThere, For: bootHere}
}

// transfer moves one session and makes node 2 the owner.
func (p *pair) transfer(id uint64) {
	p.t.Helper()
	if answer, _ := p.receive(begin(id)); answer.Kind != Ready || answer.Code != Accepted {
		p.t.Fatalf("the answer to Begin is %+v", answer)
	}
	_, imports := p.receive(&Message{Kind: Session, Transfer: id, Session: []byte("keys")})
	if len(imports) != 1 {
		p.t.Fatalf("%d sessions are to be imported, want 1", len(imports))
	}
	p.node.Imported(&imports[0], true)
	if answer, _ := p.receive(&Message{Kind: Commit, Transfer: id, Shard: 1, Version: uint32(id)}); answer.Kind != Committed {
		p.t.Fatalf("the answer to Commit is %+v", answer)
	}
}

// Messages of a transfer that come again, also after its end, restore no session, and answers that were lost are given again.
func TestRepeatedMessages(t *testing.T) {
	p := newPair(t)
	p.transfer(1)
	p.transfer(2)
	for id := range uint64(3) {
		if id == 0 {
			continue
		}
		p.receive(begin(id))
		if answer, imports := p.receive(&Message{Kind: Session, Transfer: id, Session: []byte("keys")}); len(imports) != 0 || answer.Kind != Abort {
			t.Errorf("transfer %d: a session that came before is to be imported again: %v, answer %+v", id, imports, answer)
		}
		if answer, _ := p.receive(&Message{Kind: Commit, Transfer: id, Shard: 1, Version: uint32(id)}); answer.Kind != Committed {
			t.Errorf("transfer %d: the answer to a repeated Commit is %+v", id, answer)
		}
	}
	if r, _ := p.node.Routes(); r.Owner[1] != 2 || !r.Here[1] {
		t.Errorf("node %d is the owner of shard 1, want node 2", r.Owner[1])
	}
}

// A number is imported once while its worker has not answered yet, and its answer is repeated afterwards.
func TestRepeatedSession(t *testing.T) {
	p := newPair(t)
	p.receive(begin(1))
	session := &Message{Kind: Session, Transfer: 1, Sequence: 3, Session: []byte("keys")}
	_, first := p.receive(session)
	if answer, again := p.receive(session); len(first) != 1 || len(again) != 0 || answer.Kind != 0 {
		t.Fatalf("%d and %d imports, answer %+v", len(first), len(again), answer)
	}
	p.node.Imported(&first[0], false)
	if answer, again := p.receive(session); len(again) != 0 || answer.Kind != Ack || answer.Code != NotImported {
		t.Fatalf("%d imports, answer %+v", len(again), answer)
	}
	later := &Message{Kind: Session, Transfer: 1, Sequence: 3 + 2*memory, Session: []byte("keys")}
	if _, imports := p.receive(later); len(imports) != 0 {
		t.Error("a session with a number that cannot be on its way is imported")
	}
}

// What is refused, and why.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		change func(p *pair, m *Message)
		code   uint8
	}{
		"an earlier process": {func(_ *pair, m *Message) { m.For = bootHere - 1 }, OtherBoot},
		"another length":     {func(_ *pair, m *Message) { m.CIDLength = 8 }, OtherLength},
		"no room":            {func(_ *pair, m *Message) { m.Room = 101 }, NoRoom},
		"it may have been taken over": {func(p *pair, _ *Message) {
			p.node.Tick(p.now, []Peer{{ID: 1, Up: true}}, Local{Room: 100, Silent: true})
		}, IsBusy},
		"draining": {func(p *pair, _ *Message) {
			p.receive(&Message{Kind: Announce, Boot: bootThere, Room: 5})
			if err := p.node.Drain(1); err != nil {
				t.Fatal(err)
			}
		}, IsDraining},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			m := begin(1)
			test.change(p, m)
			if answer, _ := p.receive(m); answer.Kind != Ready || answer.Code != test.code {
				t.Errorf("the answer is %+v, want code %d", answer, test.code)
			}
			if _, imports := p.receive(&Message{Kind: Session, Transfer: 1, Session: []byte("keys")}); len(imports) != 0 {
				t.Error("a session of a transfer that was refused is imported")
			}
		})
	}
}

// A drain without a node that takes sessions is an error that says why.
func TestDrainWithoutTarget(t *testing.T) {
	p := newPair(t)
	for to, want := range map[int]string{
		-1: "no other node takes sessions: none is up, runs Weir, and does not drain itself",
		1:  "node 1 does not take sessions: it does not know how, as a node of Californium",
		2:  "node 2 cannot move its sessions to itself",
		7:  "node 7 does not take sessions: it does not answer",
	} {
		if err := p.node.Drain(to); err == nil || err.Error() != want {
			t.Errorf("drain to %d: %v, want %s", to, err, want)
		}
	}
	p.receive(&Message{Kind: Announce, Boot: bootThere, Room: 5})
	if err := p.node.Drain(1); err != nil {
		t.Error(err)
	}
}

// The keys of a session are overwritten once it is settled.
func TestSettledKeysAreWiped(t *testing.T) {
	p := newPair(t)
	p.receive(&Message{Kind: Announce, Boot: bootThere, Room: 5})
	if err := p.node.Drain(1); err != nil {
		t.Fatal(err)
	}
	p.tick()
	p.receive(&Message{Kind: Ready, Transfer: 99})
	if shard, n := p.node.Wanted(0); shard != 2 || n == 0 {
		t.Fatalf("%d sessions of shard %d are wanted", n, shard)
	}
	var kept [2][]byte
	for i := range kept {
		kept[i] = p.node.Exported(2, "id", []byte("keys"), p.now).Send[0].Bytes
	}
	p.receive(&Message{Kind: Ack, Transfer: 99, Sequence: 0})
	p.receive(&Message{Kind: Abort, Transfer: 99})
	for i, b := range kept {
		if bytes.Contains(b, []byte("keys")) {
			t.Errorf("session %d is still in memory", i)
		}
	}
	if s := p.node.Stats(); s.Out != 1 || s.Lost != 1 || s.Failed != 1 {
		t.Errorf("counted: %+v", s)
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range []Message{
		{Kind: Announce, Boot: 1, Serial: 2, Draining: true, Room: 3, Owners: []Entry{{1, 2, 3}, {4, 5, 6}}},
		{Kind: Announce, Boot: 1, Owners: []Entry{{1, 2, 3}}, Counted: true, Sessions: 4},
		*begin(7),
		{Kind: Ready, Transfer: 1, Code: NoRoom},
		{Kind: Session, Transfer: 1, Sequence: 2, Session: []byte("session")},
		{Kind: Ack, Transfer: 1, Sequence: 2, Code: 6},
		{Kind: Commit, Transfer: 1, Shard: 3, Version: 4},
		{Kind: Committed, Transfer: 1},
		{Kind: Abort, Transfer: 1},
	} {
		f.Add(m.Append(nil))
	}
	f.Add([]byte{Type, byte(Announce)})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := Parse(b)
		if !ok {
			return
		}
		again, ok := Parse(m.Append(nil))
		if !ok || !bytes.Equal(again.Append(nil), m.Append(nil)) {
			t.Fatalf("%x: %+v, and read again %+v", b, m, again)
		}
	})
}
