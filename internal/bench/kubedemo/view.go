package kubedemo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/terminal"
)

// view draws the run: one block redrawn in place on a terminal, lines elsewhere.
type view struct {
	live *terminal.Live

	mu                  sync.Mutex
	step                string
	requests, datagrams []float64
	last                tick
	events              []string
}

func newView(out io.Writer) *view { return &view{live: terminal.NewLive(out)} }

// say shows a step of the preparation.
func (v *view) say(step string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.live.IsTerminal() {
		fmt.Fprintln(v.live, step)
		return
	}
	v.step = step
	v.live.Show("  " + step + " …")
}

// begin shows an event that begins.
func (v *view) begin(at time.Duration, label string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.events = append(v.events, fmt.Sprintf("%5.1f s  %s", at.Seconds(), label))
	v.draw()
}

// done shows how long the last event has taken.
func (v *view) done(took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := len(v.events) - 1
	v.events[at] = fmt.Sprintf("%-64s %5.1f s", v.events[at], took.Seconds())
	if !v.live.IsTerminal() {
		fmt.Fprintln(v.live, v.events[at])
		return
	}
	v.draw()
}

func (v *view) tick(t tick) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = t
	v.requests, v.datagrams = append(v.requests, t.requests), append(v.datagrams, t.datagrams)
	if v.live.IsTerminal() {
		v.draw()
	}
}

// draw shows the last tick; it has the lock.
func (v *view) draw() {
	t := v.last
	lines := []string{
		fmt.Sprintf("  L4 Gateway    %7.0f requests/s   %s", t.requests, sparkline(v.requests, 34)),
		fmt.Sprintf("                %7d lost sessions   %d changed ports", t.lostSessions, t.rebinds),
		fmt.Sprintf("  TURN Gateway  %7.0f datagrams/s  %s", t.datagrams, sparkline(v.datagrams, 34)),
		fmt.Sprintf("                %7d lost datagrams", t.lostPackets),
		"",
	}
	for _, e := range v.events {
		lines = append(lines, "  "+e)
	}
	v.live.Show(lines...)
}

// end leaves the last block standing.
func (v *view) end() { v.live.Keep() }

const blocks = "▁▂▃▄▅▆▇█"

func sparkline(values []float64, width int) string {
	values = values[max(0, len(values)-width):]
	top := 0.0
	for _, x := range values {
		top = max(top, x)
	}
	var b strings.Builder
	for _, x := range values {
		i := 0
		if top > 0 {
			i = int(x / top * 7.99)
		}
		b.WriteRune([]rune(blocks)[i])
	}
	return b.String()
}
