package measuring

import (
	"fmt"
	"io"
	"time"

	"github.com/weir-lb/weir/internal/terminal"
)

// Progress shows how far a long run is: one line rewritten on a terminal, else a line now and then.
type Progress struct {
	live    *terminal.Live
	Started time.Time
	last    time.Time
}

// NewProgress shows progress on w, from now on.
func NewProgress(w io.Writer) *Progress {
	return &Progress{live: terminal.NewLive(w), Started: time.Now()}
}

// Show sets the share that is done, 0 to 1, and what is done now.
func (p *Progress) Show(done float64, what string) {
	now := time.Now()
	left := ""
	if elapsed := now.Sub(p.Started); done > 0.02 && elapsed > 2*time.Second {
		left = fmt.Sprintf(", %v left", time.Duration(float64(elapsed)*(1-done)/done).Round(time.Second))
	}
	line := fmt.Sprintf("%3.0f%%  %s%s", 100*done, what, left)
	switch {
	case p.live.IsTerminal():
		p.live.Show(line)
	case now.Sub(p.last) > 10*time.Second:
		p.last = now
		fmt.Fprintln(p.live, line)
	}
}

// Clear removes the line.
func (p *Progress) Clear() { p.live.Clear() }

// Interrupted is the error of a run that was interrupted.
func Interrupted(err error) error { return fmt.Errorf("interrupted: %w", err) }
