package demo

import (
	"fmt"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// Result is the end of a run: the public form, and what its page needs besides.
type Result struct {
	v1.Demo
	planned time.Duration
	ticks   []tick
	rtt     *measure.Latency // of clients with connection IDs
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
