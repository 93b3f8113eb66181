package replica

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	nodes = 4
	step  = 20 * time.Millisecond
	short = 16 // lease that is used up at once
)

// live is a session as a process has it: what its worker would seal with next, and up to where.
type live struct {
	id         string
	next       uint64
	limit      uint64
	generation int // grows with each process that has the session
	leaving    bool
	changes    uint64
}

// process is a running process with its sessions.
type process struct {
	*Node
	self     Process
	boot     uint64
	starts   uint64
	memory   Resume // outlives the process
	sessions map[uint64]*live
	numbers  []uint64 // of sessions, in order
	clock    time.Duration
	rate     float64
	frozen   time.Duration // stopped until then
	tickAt   time.Duration
	inHand   []uint64 // sessions whose records it was about to seal when it was stopped
	peers    []Peer
	peersAt  time.Duration
}

// delivery is something on its way to a process: a message, or an entry.
type delivery struct {
	at    time.Duration
	from  uint8
	to    Process // Boot 0: whichever process the node is
	bytes []byte
	entry *Entry
}

// request is a change on its way to the engine.
type request struct {
	at     time.Duration
	from   Process
	change Change
}

// counts says which states a run has reached.
type counts struct {
	events                                               [numOfKinds]int
	restored, moved, limitStops, timeStops               int
	overlaps, outlived, stoppedSeals, refused, unfresh   int
	late, backward, forward, contested, kept, leftBehind int
	resumedLate, tooLate                                 int
}

// world is the nodes, the network between them, the engine, and what is true of every session.
type world struct {
	t         *testing.T
	random    *rand.Rand
	now       time.Duration
	up        [nodes]*process
	left      [nodes]*process // that has ended, and whose memory is there
	leftAt    [nodes]time.Duration
	cut       [nodes][nodes]bool
	engineCut [nodes]bool
	loss      float64
	delay     time.Duration
	exclusive bool // one process at a time serves a session: asserted
	ends      bool // clients end and nodes move sessions
	quiet     bool // no load
	lease     uint64
	copies    int

	entries  map[Process]Entry
	revision uint64
	requests []request
	flying   []delivery
	syncAt   time.Duration

	made       int
	sealed     map[string]map[uint64]Process // the audit
	generation map[string]int                // newest that has sealed
	newest     map[string]int
	restored   map[string]bool   // process and session: a copy or memory that was restored
	lost       map[string]string // sessions that are lost, and why
	counts
	journal []string
}

func newWorld(t *testing.T, seed, lease uint64) *world {
	w := &world{
		t: t, lease: lease, random: rand.New(rand.NewPCG(seed, 1)), delay: 5 * time.Millisecond, copies: 10000, entries: map[Process]Entry{},
		sealed: map[string]map[uint64]Process{}, generation: map[string]int{}, newest: map[string]int{}, restored: map[string]bool{}, lost: map[string]string{},
	}
	for i := range w.up {
		w.start(i, nil)
	}
	return w
}

func (w *world) log(format string, args ...any) {
	w.journal = append(w.journal, fmt.Sprintf("%v: ", w.now)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Log(strings.Join(w.journal[max(0, len(w.journal)-80):], "\n"))
	w.t.Fatalf(format, args...)
}

// start begins a process, with the memory that an earlier one has left.
func (w *world) start(i int, left *process) *process {
	p := &process{self: Process{uint8(i), w.random.Uint64() | 1}, sessions: map[uint64]*live{}, rate: 1 + (w.random.Float64()-0.5)/10, clock: time.Duration(w.random.Int64N(int64(time.Hour)))}
	p.boot = p.self.Boot
	if left != nil {
		p.self, p.starts, p.rate, p.clock = left.self, left.starts+1, left.rate, left.clock
	}
	p.Node = New(Config{Self: p.self, Boot: p.boot, Sessions: 120, Copies: w.copies, Lease: w.lease, Slot: func(number uint64) (static, changing []byte) {
		s := p.sessions[number]
		return []byte(s.id), binary.BigEndian.AppendUint64(nil, s.changes)
	}})
	w.up[i], w.left[i] = p, nil
	w.log("process %v starts as %x", p.self, p.boot)
	if left == nil {
		return p
	}
	p.clock += time.Duration(float64(w.now-w.leftAt[i]) * p.rate)
	p.memory = left.memory
	p.memory.Serial, p.memory.Now = p.starts<<32, p.clock
	p.Resume(p.memory)
	for _, number := range left.numbers {
		s := *left.sessions[number]
		noted := s.limit // a worker notes limits when it comes to use them
		if w.ends && w.random.IntN(4) == 0 {
			noted = min(noted, s.next)
		}
		number, limit, ok := p.Inherit(s.next, noted)
		if !ok {
			w.fail("no room for a session of the process before")
		}
		s.limit, s.leaving = limit, false
		p.put(number, &s)
	}
	return p
}

// stop ends a process.
func (w *world) stop(i int) *process {
	p := w.up[i]
	w.up[i], w.leftAt[i] = nil, w.now
	w.log("process %v ends with %d sessions", p.self, len(p.sessions))
	return p
}

func (p *process) put(number uint64, s *live) {
	p.sessions[number] = s
	p.numbers = append(p.numbers, number)
}

func (p *process) drop(number uint64) {
	delete(p.sessions, number)
	p.numbers = slices.DeleteFunc(p.numbers, func(n uint64) bool { return n == number })
}

// adopt enters a session that no other process has.
func (w *world) adopt(p *process, s live) bool {
	number, limit, ok := p.Add(s.next)
	if !ok {
		w.lost[s.id] = "no room"
		return false
	}
	w.newest[s.id]++
	s.limit, s.leaving, s.generation = limit, false, w.newest[s.id]
	p.put(number, &s)
	return true
}

func (w *world) handshake(p *process) {
	w.made++
	id := fmt.Sprintf("%d-%d", p.self.Node, w.made)
	w.sealed[id] = map[uint64]Process{0: p.self}
	w.adopt(p, live{id: id, next: 1})
}

// seal has a process send a record. looked: it has looked at the clock and the limit now, not before it was stopped.
func (w *world) seal(p *process, number uint64, looked bool) {
	s := p.sessions[number]
	switch {
	case s == nil || s.leaving || s.limit == 0:
		return
	case s.next >= s.limit:
		w.limitStops++
		w.take(p, p.Used(number, s.next))
		return
	case looked && p.clock >= p.SealUntil():
		w.timeStops++
		return
	}
	if before, used := w.sealed[s.id][s.next]; used {
		w.fail("process %v seals number %d of session %s, as %v has", p.self, s.next, s.id, before)
	}
	w.sealed[s.id][s.next] = p.self
	s.next++
	switch newest := w.generation[s.id]; {
	case s.generation > newest:
		w.generation[s.id] = s.generation
	case s.generation < newest:
		w.overlaps++
		if w.exclusive {
			w.fail("process %v seals a record of session %s, which another process serves", p.self, s.id)
		}
	}
	if s.generation < w.newest[s.id] {
		w.outlived++
	}
	if s.limit-s.next <= w.lease/2 {
		w.take(p, p.Used(number, s.next))
	}
}

// take does what a process requests.
func (w *world) take(p *process, o Output) {
	p.memory.Term, p.memory.Buddy = p.Line()
	p.memory.SealUntil = p.SealUntil()
	for _, s := range o.Send {
		if len(s.Bytes) > maxBatch {
			w.fail("a message of %d bytes", len(s.Bytes))
		}
		w.send(delivery{from: p.self.Node, to: Process{Node: s.To}, bytes: s.Bytes})
	}
	for _, c := range o.Changes {
		for range w.repeats() {
			if !w.engineCut[p.self.Node] && w.random.Float64() >= w.loss {
				w.requests = append(w.requests, request{w.arrival(), p.self, c})
			}
		}
	}
	for _, l := range o.Limits {
		p.sessions[l.Number].limit = l.Limit
	}
	for _, r := range o.Restored {
		w.restore(p, &r)
	}
	for _, number := range o.Removed {
		w.leave(p, number)
	}
	for _, number := range o.Dropped {
		w.lost[p.sessions[number].id] = "in doubt"
		p.drop(number)
	}
	for _, e := range o.Events {
		w.events[e.Kind]++
		if e.Kind == Fenced && p.line.resuming {
			w.tooLate++
		}
		w.log("process %v: event %d: %+v", p.self, e.Kind, e)
	}
}

// restore enters a session of another process.
func (w *world) restore(p *process, r *Restored) {
	s := p.sessions[r.Number]
	if s == nil {
		s = &live{id: string(r.Static), next: r.Start, changes: binary.BigEndian.Uint64(r.Changing)}
		p.put(r.Number, s)
		w.counts.restored++
	}
	if key := r.From.String() + " " + s.id; w.restored[key] {
		w.fail("session %s of process %v is restored twice", s.id, r.From)
	} else {
		w.restored[key] = true
	}
	if !p.NeedsFreshness(r.Number) || s.next != r.Start {
		w.fail("session %s is restored as %+v", s.id, r)
	}
	w.unfresh++
	w.newest[s.id]++
	s.generation, s.limit = w.newest[s.id], r.Limit
	if w.random.IntN(2) == 0 {
		if p.Fresh(r.Number); p.NeedsFreshness(r.Number) {
			w.fail("session %s needs another proof of freshness", s.id)
		}
	}
}

// leave moves a session to another node, or ends it.
func (w *world) leave(p *process, number uint64) {
	s := p.sessions[number]
	p.drop(number)
	w.moved++
	if to := w.up[w.random.IntN(nodes)]; to != nil && to != p && to.frozen <= w.now && w.random.IntN(4) > 0 {
		w.adopt(to, *s)
		return
	}
	w.lost[s.id] = "its client has ended it"
}

func (w *world) repeats() int {
	if w.random.Float64() < w.loss {
		return 3
	}
	return 1
}

func (w *world) arrival() time.Duration {
	return w.now + 1 + time.Duration(w.random.Int64N(int64(w.delay)))
}

func (w *world) send(d delivery) {
	if d.bytes != nil && w.cut[d.from][d.to.Node] || d.entry != nil && w.engineCut[d.to.Node] {
		return
	}
	for range w.repeats() {
		if w.random.Float64() >= w.loss {
			d.at, d.bytes = w.arrival(), slices.Clone(d.bytes)
			w.flying = append(w.flying, d)
		}
	}
}

// decide is the engine: it changes an entry if its term is the expected one, and tells all who watch.
func (w *world) decide(r *request) {
	e, exists := w.entries[r.change.Owner]
	c := &r.change
	if e.Term == c.Term && !e.Taken && (exists || c.Term == 0) {
		w.revision++
		e = Entry{Owner: c.Owner, Term: w.revision, Buddy: c.Buddy, Taken: c.Taken, By: c.By}
		w.entries[c.Owner] = e
		for i := range w.up {
			w.send(delivery{to: Process{Node: uint8(i)}, entry: &e})
		}
	} else if c.Taken {
		w.contested++
	}
	w.send(delivery{to: r.from, entry: &e})
}

// deliver brings what is due.
func (w *world) deliver() {
	due := w.requests
	w.requests = nil
	for i := range due {
		if due[i].at > w.now {
			w.requests = append(w.requests, due[i])
		} else {
			w.decide(&due[i])
		}
	}
	flying := w.flying
	w.flying = nil
	w.random.Shuffle(len(flying), func(i, j int) { flying[i], flying[j] = flying[j], flying[i] })
	for _, d := range flying {
		p := w.up[d.to.Node]
		switch {
		case d.at > w.now || p != nil && p.frozen > w.now:
			w.flying = append(w.flying, d)
		case p == nil || d.to.Boot != 0 && d.to.Boot != p.self.Boot:
		case d.entry != nil:
			w.take(p, p.Agreed(*d.entry, p.clock))
		default:
			w.observe(p, &d)
			o, ok := p.Receive(d.from, d.bytes, p.clock)
			if !ok {
				w.fail("a message is not understood: %x", d.bytes)
			}
			w.take(p, o)
		}
	}
}

// observe counts messages by what they show.
func (w *world) observe(p *process, d *delivery) {
	if m, ok := parseBatch(d.bytes); ok {
		if st := p.streams[Process{d.from, m.boot}]; st != nil && m.term == st.term && m.serial <= st.serial {
			w.late++
		} else if st == nil && m.to == p.boot && m.term <= p.floors[d.from] {
			w.leftBehind++
		}
	}
	if m, ok := parseAck(d.bytes); ok && slices.ContainsFunc(m.answers, func(a answer) bool { return a.result == resultRefused }) {
		w.refused++
	}
}

// run lets time pass, with load.
func (w *world) run(d time.Duration) {
	for end := w.now + d; w.now < end; w.now += step {
		w.deliver()
		if w.now >= w.syncAt { // who watches the engine reads it from time to time
			w.syncAt = w.now + time.Second
			for i := range w.up {
				for _, owner := range w.owners() {
					e := w.entries[owner]
					w.send(delivery{to: Process{Node: uint8(i)}, entry: &e})
				}
			}
		}
		for i, p := range w.up {
			if p != nil && p.frozen <= w.now {
				w.poll(i, p)
			} else if p != nil {
				p.clock += time.Duration(float64(step) * p.rate)
			}
		}
	}
}

// owners returns whose entries matter to somebody, in order.
func (w *world) owners() (all []Process) {
	for owner, e := range w.entries {
		for _, p := range w.up {
			if p != nil && (p.self == owner || !e.Taken || p.streams[owner] != nil) {
				all = append(all, owner)
				break
			}
		}
	}
	slices.SortFunc(all, compare)
	return all
}

// poll is one iteration of a process.
func (w *world) poll(i int, p *process) {
	for _, number := range p.inHand {
		if p.sessions[number] != nil {
			w.stoppedSeals++
		}
		w.seal(p, number, false)
	}
	p.inHand = nil
	p.clock += time.Duration(float64(step) * p.rate)
	if w.now >= p.peersAt {
		p.peersAt = w.now + 300*time.Millisecond
		p.peers = nil
		for k, other := range w.up {
			if k != i && other != nil {
				p.peers = append(p.peers, Peer{Process{other.self.Node, other.boot}, !w.cut[i][k] && other.frozen < w.now+time.Second})
			}
		}
	}
	if w.now >= p.tickAt {
		p.tickAt = w.now + TickEvery
		w.take(p, p.Tick(p.clock, p.peers))
	}
	if p.Fenced() { // the process goes on with nothing
		if len(p.sessions) > 0 {
			w.fail("process %v has %d sessions, though others were told to restore them", p.self, len(p.sessions))
		}
		w.start(i, nil)
		return
	}
	if w.quiet {
		for _, number := range p.numbers {
			if s := p.sessions[number]; s.next >= s.limit {
				w.take(p, p.Used(number, s.next))
			}
		}
		return
	}
	if len(p.numbers) == 0 {
		return
	}
	for range 4 {
		number := p.numbers[w.random.IntN(len(p.numbers))]
		for range 1 + w.random.IntN(3) {
			w.seal(p, number, true)
		}
		if s := p.sessions[number]; s != nil {
			s.changes++
			p.Changed(number)
		}
	}
	if w.ends && w.random.IntN(60) == 0 {
		number := p.numbers[w.random.IntN(len(p.numbers))]
		if s := p.sessions[number]; s.limit > 0 && !s.leaving {
			s.leaving = true
			w.take(p, p.Remove(number))
		}
	}
}
