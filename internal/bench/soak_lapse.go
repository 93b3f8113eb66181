package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

const (
	lapseEvery = 250 * time.Millisecond // how often this program looks at the clock
	// lapseLimit is half of the shortest timeout of a client for an answer (4 s): when this program, and with it the clients, did
	// not run for longer, a loss says nothing about what is measured.
	lapseLimit = 2 * time.Second
	lapsesKept = 10
)

// lapse is a time in which this program was not scheduled, since the start of the run.
type lapse struct{ at, length time.Duration }

// lapses notes them. For one goroutine, until it has ended.
type lapses struct {
	last  time.Duration
	count int
	kept  []lapse // the first ones
}

// tick notes that the program runs, at a time since the start. It is due every lapseEvery.
func (l *lapses) tick(now time.Duration) {
	due := l.last + lapseEvery
	l.last = now
	if now-due <= lapseLimit {
		return
	}
	l.count++
	if len(l.kept) < lapsesKept {
		l.kept = append(l.kept, lapse{due, now - due})
	}
}

// watch ticks until ctx ends. end waits for that.
func (l *lapses) watch(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // also while the loads end
	ended, start := make(chan struct{}), time.Now()
	go func() {
		defer close(ended)
		for programs.Sleep(ctx, lapseEvery) == nil {
			l.tick(time.Since(start))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// why says when the program did not run, and for how long; "": it always ran.
func (l *lapses) why() string {
	if l.count == 0 {
		return ""
	}
	var texts []string
	for _, gap := range l.kept {
		texts = append(texts, fmt.Sprintf("for %v at %v", gap.length.Round(100*time.Millisecond), gap.at.Round(time.Second)))
	}
	if more := l.count - len(l.kept); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d times more", more))
	}
	return "the measuring program was not scheduled " + strings.Join(texts, ", ")
}
