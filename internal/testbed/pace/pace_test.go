package pace

import (
	"testing"
	"time"
)

// The rate is kept on average, and bursts come whole.
func TestRateIsKept(t *testing.T) {
	p := Pacer{Rate: 1000, Debt: 10 * time.Millisecond}
	if n, wait := p.Take(0, 4, 4); n != 0 || wait != 4*time.Millisecond {
		t.Errorf("first burst in %v, want 4ms", wait)
	}
	bursts := 0
	for at := time.Duration(0); at <= time.Second; at += time.Millisecond {
		for n, _ := p.Take(at, 4, 4); n > 0; n, _ = p.Take(at, 4, 4) {
			bursts++
		}
	}
	if bursts != 250 {
		t.Errorf("%d bursts of 4 in a second at 1000/s", bursts)
	}
}

// A sender that was held up catches up for its debt and gives up the rest, and goes on at the rate.
func TestDelayIsCompensatedInPart(t *testing.T) {
	p, sent := Pacer{Rate: 1000, Debt: 10 * time.Millisecond}, 0
	take := func(now time.Duration) {
		for n, _ := p.Take(now, 1, 4); n > 0; n, _ = p.Take(now, 1, 4) {
			sent += n
		}
	}
	take(time.Second)
	if sent != 10 {
		t.Errorf("%d after a second of delay, want the 10 of 10 ms", sent)
	}
	take(time.Second + 5500*time.Microsecond)
	if sent != 15 {
		t.Errorf("%d 5.5 ms later, want 15", sent)
	}
}

func TestWithoutARateAllAreDue(t *testing.T) {
	if n, wait := (&Pacer{}).Take(0, 8, 64); n != 64 || wait != 0 {
		t.Errorf("%d, %v", n, wait)
	}
}

// The wait is until so many are due as are wanted at least, and what lies beyond the debt is not due at once, however many the
// caller could send.
func TestWaitAndDebt(t *testing.T) {
	p := Pacer{Rate: 1000, Debt: 10 * time.Millisecond}
	if n, wait := p.Take(2*time.Millisecond, 5, 64); n != 0 || wait != 3*time.Millisecond {
		t.Errorf("%d, wait %v: 2 of 5 are due, want to wait for 3 ms", n, wait)
	}
	if n, _ := p.Take(time.Second, 1, 64); n != 10 {
		t.Errorf("%d are due after a second of delay, want the 10 of the debt", n)
	}
}
