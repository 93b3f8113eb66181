package pods

import (
	"sync"
	"time"
)

// Status is how the Pods are followed.
type Status struct {
	Pods    int    // other ones that have an address and may run, as of the latest answer of the API server
	Ready   int    // of these
	Changes uint64 // times that the Pods, their addresses or states were different
	Errors  uint64 // refusals of the API server, and requests without an answer
	Error   string // the newest one; empty: none of late
}

// lately is how long an error counts as the present state. While it lasts there is another one every half a minute.
const lately = 90 * time.Second

// Progress counts while Follow runs. Any goroutine may call Status.
type Progress struct {
	mu     sync.Mutex
	status Status    // guarded by mu, as failed
	failed time.Time // the newest error
}

// Status returns what has happened so far.
func (p *Progress) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	if time.Since(p.failed) > lately {
		s.Error = ""
	}
	return s
}

func (p *Progress) fail(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Errors++
	p.status.Error, p.failed = text, time.Now()
}

func (p *Progress) deliver(found []Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Changes++
	p.status.Pods, p.status.Ready, p.status.Error = len(found), 0, ""
	for i := range found {
		if found[i].Ready {
			p.status.Ready++
		}
	}
}
