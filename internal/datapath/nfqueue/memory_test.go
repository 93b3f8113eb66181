package nfqueue

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// memoryQueue is a queue without a kernel: packets pushed come out of Receive in order, and Answer remembers.
type memoryQueue struct {
	mu          sync.Mutex
	cond        *sync.Cond
	waiting     []Packet
	lastID      uint32
	unknown     map[uint32]bool // without a verdict so far
	writes      [][]Verdict
	woken       bool
	closed      bool
	pollTimeout time.Duration // of the last Receive that found nothing
}

func newMemoryQueue() *memoryQueue {
	q := &memoryQueue{unknown: map[uint32]bool{}}
	q.cond = sync.NewCond(&q.mu)
	return q
}

// push queues an IP packet, cut to copyRange (0: whole), and returns its number.
func (q *memoryQueue) push(data []byte, copyRange int) uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := Packet{Length: len(data), Data: slices.Clone(data)}
	if copyRange > 0 {
		p.Data = p.Data[:min(copyRange, len(data))]
	}
	return q.pushLocked(p)
}

func (q *memoryQueue) pushLocked(p Packet) uint32 {
	q.lastID++
	p.ID = q.lastID
	q.waiting = append(q.waiting, p)
	q.unknown[p.ID] = true
	q.cond.Broadcast()
	return p.ID
}

// Receive waits for ever where the kernel would wait for pollTimeout: tests hold the clock.
func (q *memoryQueue) Receive(into []Packet, pollTimeout time.Duration) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.pollTimeout = pollTimeout
	}
	for len(q.waiting) == 0 && !q.woken && pollTimeout > 0 {
		q.cond.Wait()
	}
	q.woken = false
	n := copy(into, q.waiting)
	q.waiting = q.waiting[n:]
	return n, nil
}

func (q *memoryQueue) Answer(verdicts []Verdict) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writes = append(q.writes, slices.Clone(verdicts))
	for _, v := range verdicts {
		if !q.unknown[v.ID] {
			panic("a verdict for a packet that does not wait")
		}
		delete(q.unknown, v.ID)
	}
	q.cond.Broadcast()
	return nil
}

func (q *memoryQueue) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.woken = true
	q.cond.Broadcast()
}

func (q *memoryQueue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	return nil
}

// verdict returns what a packet got, nil while it waits.
func (q *memoryQueue) verdict(id uint32) *Verdict {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.writes {
		for i := range w {
			if w[i].ID == id {
				return &w[i]
			}
		}
	}
	return nil
}

// awaitVerdict is verdict of a packet that a running worker will answer.
func (q *memoryQueue) awaitVerdict(id uint32) Verdict {
	q.mu.Lock()
	for q.unknown[id] {
		q.cond.Wait()
	}
	q.mu.Unlock()
	return *q.verdict(id)
}

// clock is one that tests set.
type clock struct {
	mu  sync.Mutex
	now time.Duration
}

func (c *clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// openMemory is Open over count queues in memory.
func openMemory(t testing.TB, config Config, count int) (*Datapath, []*memoryQueue) {
	t.Helper()
	config.Count = count
	if err := config.setDefaults(); err != nil {
		t.Fatal(err)
	}
	d := newDatapath(config)
	queues := make([]*memoryQueue, count)
	for i := range queues {
		queues[i] = newMemoryQueue()
		d.queues = append(d.queues, queues[i])
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, queues
}

// step has the only worker read and answer once, as it would when run.
func step(t testing.TB, d *Datapath) {
	t.Helper()
	w := d.workers[0]
	n, err := w.queue.Receive(w.packets, 0)
	if err == nil {
		err = w.iterate(n)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// compile reads a spec as a user writes it.
func compile(t testing.TB, text string) *lb.Snapshot {
	t.Helper()
	spec, _, err := config.Decode[lb.Spec]("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := lb.Compile(spec, nil, Caps())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ip returns the packets that a line of packet.ParseText describes.
func ip(t testing.TB, line string) [][]byte {
	t.Helper()
	d, err := packet.ParseText(line)
	if err != nil {
		t.Fatal(err)
	}
	return d.Packets
}

const threeBackends = `
hash_key: 000102030405060708090a0b0c0d0e0f
maglev_size: 251
limits: {held_fragments: 8, held_per_datagram: 4, fragment_ttl: 1s}
services:
- name: pool
  mode: mark
  vips:
  - {address: 192.0.2.1, protocol: udp, port: 5684}
  - {address: "2001:db8::1", protocol: udp, port: 5684}
  - {address: 192.0.2.1, protocol: tcp, port: 80}
  backends:
  - {name: a, mark: 101}
  - {name: b, mark: 102}
  - {name: c, mark: 103}
`
