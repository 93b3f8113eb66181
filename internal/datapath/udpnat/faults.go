package udpnat

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Faults are the disturbances that the operator has switched on. Percentages are 0 to 100. Each datagram draws from a
// generator that is seeded with Seed, the worker and the direction: one worker and equal traffic give equal faults.
type Faults struct {
	Seed uint64
	// LossForward and LossBackward drop datagrams to and from backends.
	LossForward  float64
	LossBackward float64
	// SizeLimit drops SizePercent of the datagrams to backends that are longer, in bytes; 0 is no limit.
	SizeLimit   int
	SizePercent float64
	// TruncateLimit shortens TruncatePercent of the datagrams to backends that are longer; 0 is no limit.
	TruncateLimit   int
	TruncatePercent float64
	// ReorderPercent of the datagrams to backends are delayed by ReorderDelay plus up to ReorderJitter.
	ReorderPercent float64
	ReorderDelay   time.Duration
	ReorderJitter  time.Duration
}

// Bounds on datagrams held back for reordering, for each worker.
const (
	maxHeld      = 4096
	maxHeldBytes = 16 << 20
)

func (f *Faults) validate() error {
	for _, p := range []struct {
		what  string
		value float64
	}{
		{"loss forward", f.LossForward},
		{"loss backward", f.LossBackward},
		{"size", f.SizePercent},
		{"truncate", f.TruncatePercent},
		{"reorder", f.ReorderPercent},
	} {
		if !(p.value >= 0 && p.value <= 100) {
			return fmt.Errorf("%s fault of %v%%: want 0 to 100", p.what, p.value)
		}
	}
	if f.SizeLimit < 0 || f.TruncateLimit < 0 {
		return fmt.Errorf("size limit %d, truncate limit %d: want bytes, or 0 for none", f.SizeLimit, f.TruncateLimit)
	}
	if f.ReorderDelay < 0 || f.ReorderJitter < 0 || f.ReorderDelay+f.ReorderJitter > time.Minute {
		return fmt.Errorf("reorder delay %s plus up to %s: want 0 to 1m in all", f.ReorderDelay, f.ReorderJitter)
	}
	return nil
}

func (f *Faults) any() bool {
	return f.LossForward > 0 || f.LossBackward > 0 || f.SizeLimit > 0 || f.TruncateLimit > 0 || f.ReorderPercent > 0
}

// fate is the effect of the faults on one datagram.
type fate uint8

const (
	passes fate = iota
	lost
	tooLong
	cut
	late
)

// faultState is the state of one worker: the random generator of each direction, and the datagrams that are held.
type faultState struct {
	Faults
	on                bool
	forward, backward *rand.Rand
	held              heldHeap
	heldCount         uint64
	heldBytes         int
}

func newFaultState(f Faults, worker int) faultState {
	stream := uint64(worker) * 2
	return faultState{
		Faults: f, on: f.any(),
		forward:  rand.New(rand.NewPCG(f.Seed, stream)),
		backward: rand.New(rand.NewPCG(f.Seed, stream+1)),
	}
}

func hits(dice *rand.Rand, percent float64) bool { return percent > 0 && dice.Float64()*100 < percent }

func (s *faultState) onForward(length int) fate {
	switch {
	case hits(s.forward, s.LossForward):
		return lost
	case s.SizeLimit > 0 && length > s.SizeLimit && hits(s.forward, s.SizePercent):
		return tooLong
	case hits(s.forward, s.ReorderPercent):
		return late
	case s.TruncateLimit > 0 && length > s.TruncateLimit && hits(s.forward, s.TruncatePercent):
		return cut
	}
	return passes
}

func (s *faultState) onBackward() fate {
	if hits(s.backward, s.LossBackward) {
		return lost
	}
	return passes
}

// heldDatagram is a copy of a datagram that waits for its delayed departure.
type heldDatagram struct {
	due      time.Duration
	order    uint64 // of arrival; decides among those due at the same time
	listener *listener
	client   netip.AddrPort
	local    netip.Addr
	payload  []byte
}

// hold copies a datagram that will leave later; it returns false if there is no room.
func (s *faultState) hold(d heldDatagram, payload []byte, now time.Duration) bool {
	if len(s.held) >= maxHeld || s.heldBytes+len(payload) > maxHeldBytes {
		return false
	}
	d.due = now + s.ReorderDelay
	if s.ReorderJitter > 0 {
		d.due += time.Duration(s.forward.Int64N(int64(s.ReorderJitter)))
	}
	s.heldCount++
	d.order = s.heldCount
	d.payload = append([]byte(nil), payload...)
	s.heldBytes += len(payload)
	heap.Push(&s.held, d)
	return true
}

// release removes and returns the next datagram that is due.
func (s *faultState) release(now time.Duration) (heldDatagram, bool) {
	if len(s.held) == 0 || s.held[0].due > now {
		return heldDatagram{}, false
	}
	d := heap.Pop(&s.held).(heldDatagram)
	s.heldBytes -= len(d.payload)
	return d, true
}

// heldHeap orders by departure.
type heldHeap []heldDatagram

func (h heldHeap) Len() int { return len(h) }
func (h heldHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].order < h[j].order
}
func (h heldHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heldHeap) Push(x any)   { *h = append(*h, x.(heldDatagram)) }
func (h *heldHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = heldDatagram{}
	*h = old[:len(old)-1]
	return last
}

// isDTLS implements DTLSFilter. It accepts a complete record header and at least one byte, with version 1.2 and a known
// type, or with version 1.0 and a handshake record, as in a ClientHello (RFC 6347 section 4.1, RFC 9146 section 4).
func isDTLS(b []byte) bool {
	if len(b) < 14 || b[1] != 0xfe {
		return false
	}
	switch b[2] {
	case 0xfd:
		return b[0] >= 20 && b[0] <= 23 || b[0] == 25
	case 0xff:
		return b[0] == 22
	}
	return false
}
