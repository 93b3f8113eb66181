package netlabtest

import (
	"testing"
	"time"
)

// eventuallyWithin is long enough for a machine that does much else.
const eventuallyWithin = time.Minute

// Eventually waits until is returns true, and fails t if it does not within a minute. what completes the sentence "did
// not happen: …". It is for what another goroutine or process does and no event tells; where there is an event, wait
// for that.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(eventuallyWithin); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen within %v: %s", eventuallyWithin, what)
		}
	}
}
