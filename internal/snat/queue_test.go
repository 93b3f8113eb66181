package snat

import (
	"math/rand/v2"
	"testing"
)

// The timeline against a plain list: everything that was written to a log happens once in each of its lanes, at its time, in
// the order of time, and within a lane in the order in which it was written.
func TestTimelineAgainstModel(t *testing.T) {
	type event struct {
		at   uint64
		conn conn
	}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 20 {
		var all timeline
		var logs []int
		var waiting [][]event // of each lane, in order
		var delays []uint64
		var lanesOf [][]int
		for range 1 + r.IntN(5) {
			to := all.newLog()
			logs, lanesOf = append(logs, to), append(lanesOf, nil)
			for range 1 + r.IntN(3) {
				delay := uint64(r.IntN(2000))
				lanesOf[to] = append(lanesOf[to], len(delays))
				delays, waiting = append(delays, delay), append(waiting, nil)
				all.newLane(to, delay, what(len(delays)%11), uint8(len(delays)-1))
			}
		}
		now, popped, written := uint64(0), 0, 0
		for step := range 30_000 {
			earliest, pending := uint64(never), 0
			for _, lane := range waiting {
				if pending += len(lane); len(lane) > 0 {
					earliest = min(earliest, lane[0].at)
				}
			}
			if next := all.next(); next != earliest {
				t.Fatalf("round %d step %d: the next event is at %d, want %d", round, step, next, earliest)
			}
			// Times when the logs grow over many chunks, and times when they run empty.
			if grow := step/3000%2 == 0; pending == 0 || r.IntN(10) < map[bool]int{true: 6, false: 3}[grow] {
				to := logs[r.IntN(len(logs))]
				c := newConn(r.IntN(1<<replicaBits), r.IntN(1<<dstBits))
				all.append(to, now, c)
				written++
				for _, i := range lanesOf[to] {
					waiting[i] = append(waiting[i], event{now + delays[i], c})
				}
				if r.IntN(3) == 0 {
					now = min(now+uint64(r.IntN(10)), all.next())
				}
				continue
			}
			now = earliest
			c, l := all.pop()
			i := int(l.arg)
			if len(waiting[i]) == 0 || waiting[i][0] != (event{now, c}) || l.what != what((i+1)%11) {
				t.Fatalf("round %d step %d: lane %d gave %v at %d, want %v", round, step, i, c, now, waiting[i][:min(len(waiting[i]), 1)])
			}
			waiting[i] = waiting[i][1:]
			popped++
		}
		if popped < 5000 || written < 5000 {
			t.Errorf("round %d: %d written, %d happened", round, written, popped)
		}
	}
}

// A connection keeps its replica, its destination and its turn apart, at the bounds of each.
func TestConnections(t *testing.T) {
	for _, replica := range []int{0, 1, 1<<replicaBits - 1} {
		for _, dst := range []int{0, 1, 1<<dstBits - 1} {
			for _, via := range []uint32{0, 1, 1<<viaBits - 1} {
				if c := newConn(replica, dst).through(via); c.replica() != replica || c.dst() != dst || c.via() != int(via) {
					t.Errorf("%d, %d, %d: %d, %d, %d", replica, dst, via, c.replica(), c.dst(), c.via())
				}
			}
		}
	}
	if 1<<replicaBits < MaxReplicas || 1<<dstBits < MaxDestinations || replicaBits+dstBits+viaBits > 64 {
		t.Error("what a file may request does not fit into a connection")
	}
}
