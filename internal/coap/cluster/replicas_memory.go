package cluster

import (
	"hash/crc32"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weir-lb/weir/internal/coap/cluster/replica"
)

// lifeMemory is what outlives the process of its own entry in the store: the next process goes on as this one (replica.Resume). It may end between any two instructions: what it
// says of the entry exists twice, and the copy with the higher serial and the right sum counts.
type lifeMemory struct {
	version uint64
	starts  uint64 // of processes that have gone on as the first one
	until   uint64 // SealUntil: 48 bits of milliseconds, and 16 of the sum of the line
	lines   [2]lifeLine
}

// lifeLine is an entry of which messages may have been sent.
type lifeLine struct {
	serial    uint64
	boot      uint64 // of the process, under which the entry is
	term      uint64
	buddyBoot uint64
	floor     uint64 // sessions of the arena up to this generation were of processes that were taken over
	node      uint8
	buddyNode uint8
	_         [2]byte
	sum       uint32
}

const lifeVersion = 1

// CopiesMemory is how many bytes KeepCopies needs.
const CopiesMemory = int(unsafe.Sizeof(lifeMemory{}))

func (l *lifeLine) checksum() uint32 {
	return crc32.Checksum(unsafe.Slice((*byte)(unsafe.Pointer(l)), unsafe.Offsetof(l.sum)), crc32.MakeTable(crc32.Castagnoli))
}

// line returns the present line; ok is false if there is none.
func (m *lifeMemory) line() (l lifeLine, ok bool) {
	for i := range m.lines {
		if found := m.lines[i]; m.version == lifeVersion && found.serial > l.serial && found.sum == found.checksum() {
			l, ok = found, true
		}
	}
	return l, ok
}

// set replaces the present line.
func (m *lifeMemory) set(l lifeLine) {
	before, _ := m.line()
	l.serial = before.serial + 1
	l.sum = l.checksum()
	m.version = lifeVersion
	to := &m.lines[l.serial&1]
	atomic.StoreUint64(&to.serial, 0)
	*to = l
}

const untilBits = 16

// extend stores until when the process may seal.
func (m *lifeMemory) extend(l *lifeLine, until time.Duration) {
	atomic.StoreUint64(&m.until, uint64(max(until.Milliseconds(), 0))<<untilBits|uint64(l.sum&(1<<untilBits-1)))
}

// sealUntil returns it; 0: it is not known for this line.
func (m *lifeMemory) sealUntil(l *lifeLine) time.Duration {
	v := atomic.LoadUint64(&m.until)
	if v&(1<<untilBits-1) != uint64(l.sum&(1<<untilBits-1)) {
		return 0
	}
	return time.Duration(v>>untilBits) * time.Millisecond
}

// KeepCopies has this process go on as the one before it, if memory says which one that was, and lets the next one go on. memory is zero at first, of CopiesMemory bytes, and aligned to 8; it must
// be lost exactly if the sessions of the process are. generation is that of the newest session there. It is to be called before the engine has workers.
// If it returns false, this process goes on as no other: sessions there must be dropped.
func (c *Cluster) KeepCopies(memory []byte, generation func() uint64) bool {
	r := c.replicas
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory, r.generation = (*lifeMemory)(unsafe.Pointer(&memory[:CopiesMemory][0])), generation
	line, ok := r.memory.line()
	if !ok || line.node != uint8(c.self) {
		r.beginLocked()
		return false
	}
	r.memory.starts++
	r.self.Boot = line.boot
	r.newNodeLocked(random())
	r.node.Resume(replica.Resume{
		Term: line.term, Buddy: replica.Process{Node: line.buddyNode, Boot: line.buddyBoot}, SealUntil: r.memory.sealUntil(&line),
		Serial: r.memory.starts << 32, Now: r.clock(),
	})
	r.line, r.resumed = line, true
	r.life.Load().Until.Store(int64(r.node.SealUntil()))
	return true
}

// keepLocked stores what the next process has to know, before anybody can learn of it.
func (r *replicas) keepLocked() {
	if r.memory == nil {
		return
	}
	term, buddy := r.node.Line()
	now := lifeLine{boot: r.self.Boot, term: term, buddyBoot: buddy.Boot, floor: r.line.floor, node: r.self.Node, buddyNode: buddy.Node}
	if now.boot != r.line.boot { // sessions that were here before belong to others
		now.floor = r.generation()
	}
	was := r.line
	if was.serial, was.sum = 0, 0; now != was {
		r.memory.set(now)
		r.line, _ = r.memory.line()
	}
	r.memory.extend(&r.line, r.node.SealUntil())
}
