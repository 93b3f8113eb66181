package demo

import (
	"context"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/coap/client"
)

// plainClients is how many clients without connection ids run next to so many with them: enough to count, too few to
// take the machine from the others.
func plainClients(clients int) int { return min(max(clients/4, 10), 100) }

const (
	// plainAckTimeout makes a client without a connection id notice within 1.6 to 2.3 s what no waiting repairs: that its
	// session is lost. With RFC 7252's 2 s it would be 62 to 93 s, longer than the demo. Until the first event, and between
	// the events, the plots show that nothing is lost for the shorter wait.
	plainAckTimeout = 50 * time.Millisecond
	plainGivesUp    = plainAckTimeout * 3 / 2 * (1 + 2 + 4 + 8 + 16)
	plainPause      = 100 * time.Millisecond // between two requests of one client
)

// plainLoad is these clients while they run.
type plainLoad struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	now    client.Snapshot
	result client.BenchResult
	err    error
}

// startPlain starts them and waits until they have their sessions.
func startPlain(ctx context.Context, cfg client.BenchConfig) (*plainLoad, error) {
	p := &plainLoad{ended: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	ready := make(chan struct{})
	connected := sync.OnceFunc(func() { close(ready) })
	go func() {
		defer close(p.ended)
		result, err := client.Bench(ctx, cfg, func(snap client.Snapshot) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.now = snap
			connected()
		})
		p.mu.Lock()
		defer p.mu.Unlock()
		p.result, p.err = result, err
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.ended:
		p.cancel()
		return nil, p.err
	}
}

// stats are those of a moment ago.
func (p *plainLoad) stats() client.BenchStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.Total
}

// stop ends them and says what came of them.
func (p *plainLoad) stop() (v1.DemoPlain, error) {
	p.cancel()
	<-p.ended
	s := p.result.Stats
	return v1.DemoPlain{Established: s.Handshakes, Lost: s.LostSessions, Rehandshakes: s.Rehandshakes, Requests: s.Requests}, p.err
}
