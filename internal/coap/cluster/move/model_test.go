package move

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
	nodes   = 4
	workers = 2
	step    = 20 * time.Millisecond
)

// process is a running node with its sessions. A session is what its worker would seal with next.
type process struct {
	*Node
	id       uint8
	boot     uint64
	sessions map[string]uint64
	shards   [nodes]uint32 // sessions of each
	room     uint32
	tickAt   time.Duration
	imports  []Import // that its workers have not done yet
}

// packet is a message on its way.
type packet struct {
	from, to uint8
	at       time.Duration
	bytes    []byte
}

// world is the nodes, the network between them, and what is true of every session.
type world struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Duration
	up      [nodes]*process
	holder  map[string]*process // which process has a session
	packets []packet
	loss    float64
	delay   time.Duration
	cut     [nodes]bool // its link
	endings bool        // clients end sessions
	made    int
	sealed  map[string]map[uint64]bool // the audit: every sequence number that was used, by session
	dropped map[string]string          // sessions that are lost, and why
	events  [numOfKinds]int
	doubts  int // sessions that were dropped because no Ack came
	partial int // shards that were at two nodes at once
	journal []string
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), sealed: map[string]map[uint64]bool{}, dropped: map[string]string{}, holder: map[string]*process{}, delay: 5 * time.Millisecond}
	for i := range w.up {
		w.start(i, nil)
	}
	w.run(3 * time.Second)
	return w
}

// start begins a process, with the sessions that an earlier one has left.
func (w *world) start(i int, sessions map[string]uint64) {
	p := &process{id: uint8(i), boot: w.random.Uint64() | 1, sessions: map[string]uint64{}, room: 10000, tickAt: w.now}
	p.Node = New(Config{Self: p.id, Boot: p.boot, CIDLength: 6, Workers: workers, Random: w.random.Uint64})
	for id, sent := range sessions {
		w.put(p, id, sent)
		if shardOf(id) != p.id {
			p.Hold(shardOf(id))
		}
	}
	w.up[i] = p
	w.log("node %d starts with %d sessions", i, len(sessions))
}

func (w *world) log(format string, args ...any) {
	w.journal = append(w.journal, fmt.Sprintf("%v: ", w.now)+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Log(strings.Join(w.journal[max(0, len(w.journal)-80):], "\n"))
	w.t.Fatalf(format, args...)
}

// stop ends a process. kept: its sessions are in memory that outlives it.
func (w *world) stop(i int, kept bool) map[string]uint64 {
	p := w.up[i]
	w.up[i] = nil
	if t := p.out; t != nil {
		for _, f := range t.flights { // they are in no memory any more
			w.dropped[f.id] = "on its way when its node ended"
		}
	}
	w.log("node %d stops with %d sessions, kept: %v", i, len(p.sessions), kept)
	for id := range p.sessions {
		delete(w.holder, id)
	}
	if kept {
		return p.sessions
	}
	for id := range p.sessions {
		w.dropped[id] = "its node ended"
	}
	return nil
}

func shardOf(id string) uint8 { return id[0] - '0' }

func workerOf(id string) int { return int(id[len(id)-1]) % workers }

// handshake makes a session.
func (w *world) handshake(p *process) {
	w.made++
	id := fmt.Sprintf("%d-%d", p.id, w.made)
	w.put(p, id, 1)
	w.sealed[id] = map[uint64]bool{0: true}
}

// seal has a node send a record of a session that it has.
func (w *world) seal(p *process, id string) {
	sequence := p.sessions[id]
	if w.sealed[id][sequence] {
		w.fail("node %d uses the sequence number %d of session %s again", p.id, sequence, id)
	}
	if why := w.dropped[id]; why == "its node ended" || why == "its client has ended it" {
		w.fail("node %d has session %s, though %s", p.id, id, why)
	}
	w.sealed[id][sequence] = true
	p.sessions[id]++
}

func (w *world) take(p *process, o Output) {
	for _, s := range o.Send {
		copies := 1
		if w.random.Float64() < w.loss {
			copies = 3
		}
		to := w.up[s.To]
		if to == nil || w.cut[s.To] || w.cut[p.id] {
			continue
		}
		for range copies {
			if w.random.Float64() < w.loss {
				continue
			}
			at := w.now + 1 + time.Duration(w.random.Int64N(int64(w.delay)))
			w.packets = append(w.packets, packet{p.id, s.To, at, slices.Clone(s.Bytes)})
		}
	}
	for _, i := range o.Imports {
		i.Session = slices.Clone(i.Session)
		p.imports = append(p.imports, i)
	}
	for _, s := range o.Settled {
		if !s.Moved {
			w.doubts++
			w.dropped[s.ID] = "in doubt"
		}
	}
	for _, e := range o.Events {
		w.events[e.Kind]++
		w.log("node %d: event %d: %+v", p.id, e.Kind, e)
	}
}

// importOne does what a worker of the receiving node does.
func (w *world) importOne(p *process) {
	i := p.imports[0]
	p.imports = p.imports[1:]
	id := string(i.Session[8:])
	_, taken := p.sessions[id]
	if !taken {
		w.put(p, id, binary.BigEndian.Uint64(i.Session))
	}
	w.take(p, p.Imported(&i, !taken))
}

// export does what the workers of the sending node do.
func (w *world) export(p *process) {
	for worker := range workers {
		shard, n := p.Wanted(worker)
		if n == 0 {
			continue
		}
		found := 0
		for _, id := range sorted(p.sessions) {
			if found == n {
				break
			}
			if shardOf(id) != shard || workerOf(id) != worker {
				continue
			}
			sent := p.sessions[id]
			w.remove(p, id)
			found++
			w.take(p, p.Exported(shard, id, append(binary.BigEndian.AppendUint64(nil, sent), id...), w.now))
		}
		if found == 0 {
			w.take(p, p.Empty(worker, false))
		}
	}
}

func sorted(m map[string]uint64) []string {
	var ids []string
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// run lets time pass, with load.
func (w *world) run(d time.Duration) {
	for end := w.now + d; w.now < end; w.now += step {
		due := w.packets
		w.packets = nil
		w.random.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		for _, m := range due {
			to := w.up[m.to]
			switch {
			case m.at > w.now:
				w.packets = append(w.packets, m)
			case to != nil: // perhaps another process than the one it was for
				o, ok := to.Receive(m.from, m.bytes, w.now)
				_ = ok // false before the first tick
				w.take(to, o)
			}
		}
		for i, p := range w.up {
			if p == nil {
				continue
			}
			if w.now >= p.tickAt {
				p.tickAt = w.now + TickEvery
				w.take(p, p.Tick(w.now, w.peers(i), Local{Room: p.room, Own: p.count(p.id), Sessions: uint32(len(p.sessions))}))
			}
			for len(p.imports) > 0 && w.random.IntN(4) > 0 {
				w.importOne(p)
			}
			w.export(p)
			sealed := 0
			for id := range p.sessions { // in any order: the audit is the same
				if sealed++; sealed > 3 {
					break
				}
				w.seal(p, id)
				if w.endings && w.random.IntN(500) == 0 {
					w.remove(p, id)
					w.dropped[id] = "its client has ended it"
				}
			}
		}
		w.check()
	}
}

func (p *process) count(shard uint8) uint32 { return p.shards[shard] }

// put enters a session, which must be at no other node.
func (w *world) put(p *process, id string, sent uint64) {
	if other := w.holder[id]; other != nil {
		w.fail("session %s is at nodes %d and %d", id, other.id, p.id)
	}
	p.sessions[id], w.holder[id] = sent, p
	p.shards[shardOf(id)]++
}

func (w *world) remove(p *process, id string) {
	delete(p.sessions, id)
	delete(w.holder, id)
	p.shards[shardOf(id)]--
}

// peers is what the membership would say.
func (w *world) peers(self int) (all []Peer) {
	for i := range w.up {
		if i != self {
			all = append(all, Peer{ID: uint8(i), Up: w.up[i] != nil && !w.cut[i] && !w.cut[self]})
		}
	}
	return all
}

// check counts how often the sessions of a shard are at several nodes.
func (w *world) check() {
	for s := range nodes {
		at := 0
		for _, p := range w.up {
			if p != nil && p.shards[s] > 0 {
				at++
			}
		}
		if at > 1 {
			w.partial++
		}
	}
}

// settled asserts what holds once nothing has failed for a while: every shard is at home, every session is served or was dropped, and
// every node finds it.
func (w *world) settled() {
	at := map[string]*process{}
	for _, p := range w.up {
		for id := range p.sessions {
			at[id] = p
			if shardOf(id) != p.id {
				w.fail("session %s is at node %d, though its home is back", id, p.id)
			}
		}
		if len(p.Held()) > 0 || p.out != nil {
			w.fail("node %d holds the shards %v; a transfer: %v", p.id, p.Held(), p.out)
		}
	}
	for id := range w.sealed {
		if p := at[id]; p == nil && w.dropped[id] == "" {
			w.fail("session %s is gone", id)
		}
	}
	for _, p := range w.up {
		r, _ := p.Routes()
		for shard := range nodes {
			if int(r.Owner[shard]) != shard {
				w.fail("node %d takes node %d for the owner of shard %d", p.id, r.Owner[shard], shard)
			}
		}
	}
}

// find follows a record as nodes do, and returns whether it reaches its session.
func (w *world) find(at int, id string) bool {
	for range 3 {
		p := w.up[at]
		if p == nil {
			return false
		}
		if _, ok := p.sessions[id]; ok {
			return true
		}
		r, _ := p.Routes()
		if at = int(r.Onward[shardOf(id)]); at < 0 {
			return false
		}
	}
	return false
}

func (w *world) drained(i int) bool { return w.up[i].Draining().Done }

func (w *world) until(what string, limit time.Duration, done func() bool) {
	w.t.Helper()
	for end := w.now + limit; !done(); w.run(step) {
		if w.now >= end {
			w.fail("not within %v: %s", limit, what)
		}
	}
}

// Nodes are drained and restarted, one after the other, under load and with a little loss: no session is dropped, each is reached
// through each node at all times, and each shard is at home in the end.
func TestRollingRestart(t *testing.T) {
	w := newWorld(t, 7)
	for i := range w.up {
		for range 400 {
			w.handshake(w.up[i])
		}
	}
	w.loss = 0.02
	for i := range w.up {
		if err := w.up[i].Drain(-1); err != nil {
			t.Fatal(err)
		}
		w.until("the node is drained", 20*time.Second, func() bool { return w.drained(i) })
		w.run(2 * announceEvery)
		for from := range w.up {
			for id := range w.sealed {
				if from != i && !w.find(from, id) {
					w.fail("node %d does not find session %s after node %d was drained", from, id, i)
				}
			}
		}
		if n := len(w.up[i].sessions); n > 0 {
			w.fail("node %d has %d sessions after its drain", i, n)
		}
		w.stop(i, false)
		w.run(time.Second)
		w.start(i, nil)
		w.until("the sessions are back", 20*time.Second, func() bool { return w.up[i].count(uint8(i)) == 400 })
		w.run(2 * announceEvery)
	}
	w.settled()
	if len(w.dropped) > 0 {
		t.Fatalf("%d sessions are lost: %v", len(w.dropped), w.dropped)
	}
}

// A drain without a requested node moves a shard to the node with the fewest sessions that has room for it, also if another one has more
// room; a node that has two shards moves them to different nodes, if these then have fewer.
func TestDrainChoosesTheFewestSessions(t *testing.T) {
	w := newWorld(t, 5)
	for i, n := range [nodes]int{150, 30, 100, 90} {
		w.up[i].room = []uint32{1000, 140, 9000, 1000}[i]
		for range n {
			w.handshake(w.up[i])
		}
	}
	w.run(2 * announceEvery)
	drain := func(i int) {
		t.Helper()
		if err := w.up[i].Drain(-1); err != nil {
			t.Fatal(err)
		}
		w.until("the node is drained", 20*time.Second, func() bool { return w.drained(i) })
		w.run(2 * announceEvery)
	}
	at := func(shard int) (holders []int) {
		for i, p := range w.up {
			if p != nil && p.count(uint8(shard)) > 0 {
				holders = append(holders, i)
			}
		}
		return holders
	}
	drain(0)
	if got := at(0); !slices.Equal(got, []int{3}) {
		t.Fatalf("the 150 sessions of node 0 are at %v, want node 3: node 1 has fewer and no room, node 2 more", got)
	}
	w.stop(0, false)
	w.run(time.Second)
	for i := 1; i < nodes; i++ {
		w.up[i].room = 1000
	}
	w.run(2 * announceEvery)
	drain(3) // which has the shards 0, of 150 sessions, and 3, of 90
	if zero, three := at(0), at(3); !slices.Equal(zero, []int{1}) || !slices.Equal(three, []int{2}) {
		t.Fatalf("the shards 0 and 3 are at %v and %v, want the nodes 1, which had 30 sessions, and 2, which had 100", zero, three)
	}
	if len(w.dropped) > 0 {
		t.Fatalf("%d sessions are lost: %v", len(w.dropped), w.dropped)
	}
	w.start(0, nil)
	w.up[3].Undrain()
	w.run(2*ClaimAfter + idleAfter)
	w.settled()
}

// A drain that is ended has the sessions back; a session made meanwhile follows the others.
func TestUndrain(t *testing.T) {
	w := newWorld(t, 3)
	for range 50 {
		w.handshake(w.up[0])
	}
	if err := w.up[0].Drain(2); err != nil {
		t.Fatal(err)
	}
	w.until("the node is drained", 10*time.Second, func() bool { return w.drained(0) })
	w.handshake(w.up[0])
	w.until("the late session has moved", 10*time.Second, func() bool { return len(w.up[2].sessions) == 51 })
	w.up[0].Undrain()
	w.until("the sessions are back", 10*time.Second, func() bool { return len(w.up[0].sessions) == 51 })
	w.run(2 * announceEvery)
	w.settled()
}

// Nodes are drained, killed, restarted and cut off at random, and messages are lost, repeated, delayed and reordered. No sequence number
// is used twice, no session is at two nodes, and in the end each is at home or was dropped.
func TestModel(t *testing.T) {
	var events [numOfKinds]int
	doubts, partial, made, lost := 0, 0, 0, 0
	for seed := range uint64(40) {
		w := newWorld(t, seed)
		w.endings = true
		w.disturb()
		for k, n := range w.events {
			events[k] += n
		}
		doubts, partial, made, lost = doubts+w.doubts, partial+w.partial, made+w.made, lost+len(w.dropped)
	}
	for kind, n := range events {
		if n == 0 {
			t.Errorf("no event of kind %d in any run", kind)
		}
	}
	if doubts == 0 || partial == 0 || lost == 0 || lost == made {
		t.Errorf("%d sessions in doubt, %d times a shard in two parts, %d of %d sessions lost: the model does not reach these states", doubts, partial, lost, made)
	}
}

func (w *world) disturb() {
	for range 30 {
		i := w.random.IntN(nodes)
		p := w.up[i]
		switch w.random.IntN(10) {
		case 0, 1, 2:
			if p != nil {
				_ = p.Drain(-1) // refused where no node takes sessions
			}
		case 3:
			if p != nil {
				p.Undrain()
			}
		case 4:
			w.cut[i] = !w.cut[i]
			w.log("node %d cut off: %v", i, w.cut[i])
		case 5:
			if p != nil {
				w.stop(i, false)
			}
		case 6, 7:
			if p != nil {
				w.start(i, w.stop(i, true))
			}
		case 8:
			w.loss, w.delay = w.random.Float64()/3, time.Duration(1+w.random.Int64N(int64(2*time.Second)))
		case 9:
			for i, p := range w.up {
				if p == nil {
					w.start(i, nil)
				}
			}
		}
		for _, p := range w.up {
			if p != nil {
				for range w.random.IntN(20) {
					w.handshake(p)
				}
			}
		}
		w.run(time.Duration(w.random.Int64N(int64(3 * time.Second))))
		if w.random.IntN(10) == 0 {
			w.run(ClaimAfter)
		}
	}
	w.loss, w.delay, w.cut = 0, step, [nodes]bool{}
	for i, p := range w.up {
		if p == nil {
			w.start(i, nil)
			continue
		}
		p.Undrain()
	}
	w.run(2*ClaimAfter + idleAfter)
	w.settled()
}
