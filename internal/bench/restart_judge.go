package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// restartLimit is how long a client may wait: a first retransmission is due after 2 to 3 s (RFC 7252 section 4.8: ACK_TIMEOUT times
// ACK_RANDOM_FACTOR).
const restartLimit = 3 * time.Second

// restartWindow is an event and what the clients saw until the next one.
type restartWindow struct {
	at     time.Time     // of the event
	served time.Duration // until another process answered at the admin socket; 0 where nothing happened
	load   float64       // load average before the event

	moving, forwarded uint64 // datagrams between cluster nodes: while a shard moved, and afterwards

	// Of the server's sessions, where they are replicated: those that other nodes have taken over; those that the server has dropped, because
	// another node has them or they do not fit, or that the others could not go on with; and those of which no other node has a copy at the end
	// of the window.
	taken, dropped uint64
	behind         int

	sent, answered, lost, handshakes, repeated uint64

	wait    time.Duration // longest of a client, from the intended time of its request
	silence time.Duration // longest without a response to any client of a worker
	late    time.Duration // longest that the clients' program was behind: it had no processor
}

// belongs is how long before an event a request may be due that waits because of it: those that the process has read, or that wait in
// its sockets.
const belongs = 500 * time.Millisecond

// windowsOf adds to each event what the clients report. What they count belongs to the event before, and a wait to the event before or
// shortly after which it began.
func windowsOf(events []restartWindow, samples []v1.CoAPBenchSample) []restartWindow {
	all := append([]restartWindow(nil), events...)
	var before v1.CoAPBenchStats
	for i := range samples {
		s := &samples[i]
		w := windowAt(all, s.At)
		if w != nil {
			t := &s.Total
			w.sent += t.Sent - before.Sent
			w.answered += t.Requests - before.Requests
			w.lost += t.Lost + t.Failed + t.LostSessions + t.HandshakeErrors - before.Lost - before.Failed - before.LostSessions - before.HandshakeErrors
			w.handshakes += t.Rehandshakes - before.Rehandshakes
			w.repeated += t.Retransmissions - before.Retransmissions
			w.silence, w.late = max(w.silence, millis(s.Silence)), max(w.late, millis(s.Late))
		}
		before = s.Total
		for _, wait := range []time.Duration{millis(s.Max), millis(s.Waiting)} {
			if w := windowAt(all, s.At.Add(belongs-wait)); w != nil {
				w.wait = max(w.wait, wait)
			}
		}
	}
	return all
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// windowAt is the window of the last event before a time; nil before the first one.
func windowAt(all []restartWindow, at time.Time) (w *restartWindow) {
	for i := range all {
		if !all[i].at.After(at) {
			w = &all[i]
		}
	}
	return w
}

// judge is the verdict on one event, and why. A wait proves nothing if the clients' program was behind for so long that it may be its own,
// and nothing was tested if that was longer than half of what a client may wait.
func (w *restartWindow) judge() (verdict, why string) {
	var missed []string
	if w.answered == 0 {
		missed = append(missed, "no answers")
	}
	if w.lost > 0 {
		missed = append(missed, fmt.Sprintf("%d lost", w.lost))
	}
	if w.handshakes > 0 {
		missed = append(missed, fmt.Sprintf("%d handshakes", w.handshakes))
	}
	if w.forwarded > 0 {
		missed = append(missed, fmt.Sprintf("%d forwarded after the move", w.forwarded))
	}
	starved := w.late > restartLimit/2 || w.wait > restartLimit && w.wait-w.late <= restartLimit
	if w.wait > restartLimit && !starved {
		missed = append(missed, fmt.Sprintf("a wait of %d ms", w.wait.Milliseconds()))
	}
	if len(missed) > 0 && w.taken+w.dropped > 0 { // no aim by itself: clients notice nothing of a session that goes on elsewhere
		missed = append(missed, fmt.Sprintf("%d sessions taken over, %d dropped", w.taken, w.dropped))
	}
	switch {
	case len(missed) > 0:
		return verdictMissed, strings.Join(missed, ", ")
	case starved:
		return verdictVoid, fmt.Sprintf("the clients' program was not scheduled for %d ms; the longest wait is %d ms", w.late.Milliseconds(), w.wait.Milliseconds())
	}
	return verdictReached, ""
}
