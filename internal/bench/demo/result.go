package demo

import (
	"fmt"
	"time"
)

// Result is the end of a run and its JSON form.
type Result struct {
	OK              bool     `json:"ok"`
	Verdict         string   `json:"verdict"`
	Requests        uint64   `json:"requests"`     // answered
	Established     uint64   `json:"established"`  // sessions made
	Lost            uint64   `json:"lost"`         // sessions given up by their client
	Rehandshakes    uint64   `json:"rehandshakes"` // handshakes after a client's first
	Errors          uint64   `json:"errors"`       // requests failed or unanswered
	Retransmissions uint64   `json:"retransmissions"`
	Rate            float64  `json:"requests_per_s"`
	P50             float64  `json:"p50_ms"`
	P99             float64  `json:"p99_ms"`
	Max             float64  `json:"max_ms"`
	Forwarded       uint64   `json:"forwarded"` // records that reached their owner through another node
	Plain           Plain    `json:"without_cid"`
	Sessions        []int    `json:"sessions"` // that each node holds at the end, those that clients without connection ids have given up included
	Drained         int      `json:"drained"`  // number of the node that got no new clients at the end
	Clients         int      `json:"clients"`
	Nodes           int      `json:"nodes"`
	Seconds         float64  `json:"seconds"`
	Seed            uint64   `json:"seed"`
	Events          []Event  `json:"events"`
	Report          string   `json:"report,omitempty"`   // where the caller put the page
	Failures        []string `json:"failures,omitempty"` // why OK is false

	asked time.Duration
	ticks []tick
}

// judge says what the run proved. Each condition can fail on its own.
func (r *Result) judge() {
	fail := func(format string, args ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, args...)) }
	if r.Lost > 0 {
		fail("%d sessions lost", r.Lost)
	}
	if r.Rehandshakes > 0 {
		fail("%d handshakes after the first", r.Rehandshakes)
	}
	if r.Errors > 0 {
		fail("%d requests failed", r.Errors)
	}
	if r.Requests == 0 {
		fail("no request was answered")
	}
	if r.Nodes > 1 && r.Forwarded == 0 {
		fail("no record reached a node that does not own it, so nothing was tried")
	}
	for _, e := range r.Events {
		if e.Error != "" {
			fail("%s: %s", e.Label, e.Error)
		}
	}
	r.OK = len(r.Failures) == 0
	r.Verdict = fmt.Sprintf("Sessions lost: %d with connection IDs, %d of %d without.", r.Lost, r.Plain.Lost, r.Plain.Established)
	if !r.OK {
		r.Verdict = "Not proved: " + r.Failures[0] + "."
	}
}

// grouped writes n with a comma at each thousand.
func grouped(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
