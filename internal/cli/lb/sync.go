package lb

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/redundancy"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// newSync returns what shares the state of a balancer's flows with others. completed is called when addresses may be announced.
func newSync(loop **control.Loop, balancer *balancer, completed func(), log *slog.Logger) *redundancy.Sync {
	return redundancy.New(redundancy.Options{
		Log: log, Table: balancer.table, Completed: completed,
		Applied: func() (*lb.Snapshot, <-chan struct{}) {
			_, changed := (*loop).Applied()
			return (*loop).Snapshot(), changed
		},
	})
}

// sharing runs a data path, and shares the state of its flows while it runs.
func sharing(ctx context.Context, shared *redundancy.Sync, run func(context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { shared.Run(inner) })
	defer group.Wait()
	defer cancel()
	return run(ctx)
}

// unwellSync returns an error when an operator should look at how the state of flows is shared.
func unwellSync(s *v1.SyncStatus) error {
	if s == nil {
		return nil
	}
	if s.Error != "" {
		return fmt.Errorf("sync: %s", s.Error)
	}
	for i := range s.Peers {
		if p := &s.Peers[i]; p.Out.Error != "" {
			return fmt.Errorf("sync: peer %s is not sent the state of flows: %s", p.Address, p.Out.Error)
		}
	}
	return nil
}
