package holder

import "time"

// plan is when an active router announces, and when it renews its addresses.
type plan struct {
	announce  time.Time // next
	renew     time.Time
	announced time.Time // last
	second    bool      // the next one is the second burst
}

// begin plans what follows the burst of a takeover.
func (p *plan) begin(now time.Time) { p.announce, p.second = now.Add(secondBurst), true }

// next returns how many announcements are due, and plans the following ones.
func (p *plan) next(now time.Time) int {
	n := 1
	if p.second {
		n = burst
	}
	p.announce, p.second = now.Add(repeatEvery), false
	return n
}

// hasten announces as at a takeover, but no more than once within repeatLimit: others can cause it.
func (p *plan) hasten(now time.Time) {
	if at := p.announced.Add(repeatLimit); now.Before(at) {
		now = at
	}
	if p.announce.IsZero() || now.Before(p.announce) {
		p.announce, p.second = now, true
	}
}
