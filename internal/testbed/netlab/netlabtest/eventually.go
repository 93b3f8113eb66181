package netlabtest

import (
	"testing"
	"time"
)

// eventuallyWithin is long enough for a machine that does much else.
const eventuallyWithin = 90 * time.Second

// Eventually waits until is returns true, and fails t if it does not within 90 s. what completes the sentence "did not happen: …";
// state, if given, is what the failure shows besides. It is for what another goroutine or process does and no event reports; where there
// is an event, wait for that.
func Eventually(t testing.TB, what string, is func() bool, state ...func() string) {
	t.Helper()
	pause := time.Millisecond
	for end := time.Now().Add(eventuallyWithin); !is(); time.Sleep(pause) {
		pause = min(2*pause, 20*time.Millisecond)
		if time.Now().After(end) {
			for _, text := range state {
				what += "\n" + text()
			}
			t.Fatalf("did not happen within %v: %s", eventuallyWithin, what)
		}
	}
}
