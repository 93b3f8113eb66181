package rate_test

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/rate"
)

const cost, burst = 10 * time.Millisecond, 100 * time.Millisecond

func TestBucketStartsFullAndEarnsItsRate(t *testing.T) {
	t.Parallel()
	var b rate.Bucket
	took := 0
	for now := time.Duration(0); now < time.Second; now += time.Millisecond {
		for b.Take(now, cost, burst) {
			took++
		}
	}
	if want := 10 + 99; took != want {
		t.Errorf("took %d in a second, want a burst of 10 and 99 that were earned", took)
	}
	if b.Take(999*time.Millisecond, cost, burst) || !b.Take(time.Second, cost, burst) {
		t.Error("a token is there before it is earned, or not when it is")
	}
}

func TestIdleBucketSavesOneBurst(t *testing.T) {
	t.Parallel()
	var b rate.Bucket
	if n := b.TakeUpTo(time.Hour, cost, burst, 100); n != 10 {
		t.Errorf("an hour earned %d tokens, want a burst of 10", n)
	}
	if n := b.TakeUpTo(time.Hour+25*time.Millisecond, cost, burst, 100); n != 2 {
		t.Errorf("25 ms earned %d tokens, want 2", n)
	}
	if n := b.TakeUpTo(time.Hour+30*time.Millisecond, cost, burst, 100); n != 1 {
		t.Errorf("the half token was lost: %d, want 1", n)
	}
}

func TestBurstBelowTheCostStillEarns(t *testing.T) {
	t.Parallel()
	var b rate.Bucket
	if !b.Take(0, time.Second, 0) || b.Take(999*time.Millisecond, time.Second, 0) || !b.Take(time.Second, time.Second, 0) {
		t.Error("want one token each second")
	}
}

func TestEmptyBucketEarnsFromNowOn(t *testing.T) {
	t.Parallel()
	b := rate.Empty(time.Minute, burst)
	if b.Take(time.Minute, cost, burst) || !b.Take(time.Minute+cost, cost, burst) {
		t.Error("want the first token after its cost")
	}
}

func TestDebtIsWaitedFor(t *testing.T) {
	t.Parallel()
	var b rate.Bucket
	for range 15 {
		b.Spend(time.Minute, cost)
	}
	if w := b.Wait(time.Minute, burst); w != 5*cost {
		t.Errorf("wait %v for 5 tokens beyond the burst, want %v", w, 5*cost)
	}
	if w := b.Wait(time.Minute+5*cost, burst); w != 0 || b.Has(time.Minute+5*cost, cost, burst) {
		t.Errorf("after that: wait %v, want 0 and no token", w)
	}
}

func TestCostRounds(t *testing.T) {
	t.Parallel()
	if c := rate.Cost(3, 2e9); c != 2 {
		t.Errorf("3 tokens at 2e9 a second cost %d ns, want 2", c)
	}
	if c := rate.Cost(1, 100); c != cost {
		t.Errorf("a token at 100 a second costs %v, want %v", c, cost)
	}
}
