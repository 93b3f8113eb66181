package tcpscale

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Against a map of due times: each timer fires once, at its tick and not before.
func TestWheelFiresWhenDue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var w wheel
	due := map[int32]uint32{}
	for now := uint32(1); now < 6000; now += 1 + uint32(rnd.IntN(3))*uint32(rnd.IntN(700)) {
		for range 20 {
			id := rnd.Int32N(3000)
			if rnd.IntN(4) == 0 {
				w.cancel(id)
				delete(due, id)
				continue
			}
			at := now + uint32(rnd.IntN(4000))
			w.set(id, at)
			due[id] = max(at, w.next)
		}
		w.advance(now, func(id int32) {
			if at, ok := due[id]; !ok || at > now {
				t.Fatalf("at %d: %d fires, due at %d (%v)", now, id, at, ok)
			}
			delete(due, id)
		})
		for id, at := range due {
			if at <= now {
				t.Fatalf("at %d: %d has not fired, due at %d", now, id, at)
			}
		}
	}
}

func TestWheelDoesNotAllocate(t *testing.T) {
	var w wheel
	now := uint32(1)
	for id := range int32(2000) {
		w.set(id, now+uint32(id%50))
	}
	beat := func() {
		now++
		w.advance(now, func(id int32) { w.set(id, now+50) })
	}
	for range 100 {
		beat()
	}
	if n := testing.AllocsPerRun(200, beat); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBucketKeepsItsRate(t *testing.T) {
	b := newBucket(1000, 0)
	got := 0
	for now := time.Duration(0); now <= 10*time.Second; now += 7 * time.Millisecond {
		got += b.take(now, 1000)
	}
	if got < 9900 || got > 10000 {
		t.Errorf("%d in 10 s at 1000/s", got)
	}
	b.take(0, 0)
	if n := b.take(time.Hour, 1e6); n > 250 {
		t.Errorf("%d at once after an hour", n)
	}
	if n := (&bucket{}).take(0, 7); n != 7 {
		t.Errorf("without a rate: %d of 7", n)
	}
}
