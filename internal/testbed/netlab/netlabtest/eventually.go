package netlabtest

import (
	"testing"
	"time"
)

// eventuallyWithin is long enough for a machine that does much else.
const eventuallyWithin = 90 * time.Second

// Eventually waits until is returns true, and fails t if it does not within 90 s. what completes the sentence "did not happen: …";
// state, if given, is what the failure shows besides. It is for what another goroutine or process does and no event reports; where there
// is an event, wait for that. It looks again after a millisecond at first, and later after a twentieth of what it has waited already, at most
// a quarter of a second: what is looked at works for its answer, and so do the other tests.
func Eventually(t testing.TB, what string, is func() bool, state ...func() string) {
	t.Helper()
	pause := time.Millisecond
	for begun := time.Now(); !is(); time.Sleep(pause) {
		waited := time.Since(begun)
		pause = min(2*pause, max(20*time.Millisecond, waited/20), 250*time.Millisecond)
		if waited > eventuallyWithin {
			for _, text := range state {
				what += "\n" + text()
			}
			t.Fatalf("did not happen within %v: %s", eventuallyWithin, what)
		}
	}
}
