package kubedemo

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/turn/load"
)

// calls are TURN allocations with datagrams both ways all the time, in rounds.
type calls struct {
	load   *load.Load
	count  int
	stop   context.CancelFunc
	closed chan struct{}

	mu             sync.Mutex
	up, down, lost uint64
	idle           int       // allocations that a round did not use both ways
	at             time.Time // of the end of the last round
	err            error
}

const (
	mediaPort  = 9001
	perSecond  = 10 // datagrams of a call each way
	roundSteps = 5  // of each call in a round
)

// startCalls allocates at an address from the remote namespace and begins to send to the media server.
func startCalls(ctx context.Context, c *cluster, address netip.AddrPort) (*calls, error) {
	l := &calls{count: c.cfg.Clients, closed: make(chan struct{})}
	if err := c.remote.Do(func() (err error) {
		l.load, err = load.Open(ctx, load.Config{
			Server: address, User: "user-1", Password: "pass-1", Clients: l.count, Size: 160, Burst: 1, Timeout: within,
			Source: netip.MustParseAddr(kubelab.RemoteAddress), Sink: netip.AddrPortFrom(netip.MustParseAddr(kubelab.ClientAddress), mediaPort), SinkIn: c.client.Do,
		})
		return err
	}); err != nil {
		return nil, fmt.Errorf("TURN: %w", err)
	}
	ctx, l.stop = context.WithCancel(ctx)
	go l.run(ctx)
	return l, nil
}

func (l *calls) run(ctx context.Context) {
	defer close(l.closed)
	for ctx.Err() == nil {
		// A round is not cut short: what is under way then would count as lost.
		r, err := l.load.Run(context.WithoutCancel(ctx), load.Phase{
			Rate: float64(perSecond * l.count), Count: uint64(roundSteps * l.count), Direction: load.Both, Silence: 10 * time.Second,
		})
		l.mu.Lock()
		if err != nil {
			l.err = err
			l.mu.Unlock()
			return
		}
		l.up, l.down = l.up+r.Up.Sum.Received, l.down+r.Down.Sum.Received
		l.at = time.Now()
		l.lost += r.Up.Sum.Lost + r.Down.Sum.Lost
		for _, flow := range []load.Flow{r.Up, r.Down} {
			for _, one := range flow.Connections {
				if one.Received == 0 {
					l.idle++
				}
			}
		}
		l.mu.Unlock()
	}
}

// callStats are since the start.
type callStats struct {
	up, down, lost uint64
	idle           int
	at             time.Time
}

func (l *calls) now() (callStats, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return callStats{l.up, l.down, l.lost, l.idle, l.at}, l.err
}

// end ends the calls. Every allocation that still lives is counted.
func (l *calls) end(ctx context.Context) (s callStats, alive int, err error) {
	l.stop()
	<-l.closed
	if s, err = l.now(); err != nil {
		return s, 0, err
	}
	if alive, err = l.load.Refresh(ctx); err != nil {
		return s, alive, err
	}
	return s, alive, l.load.Close()
}
