package control

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Receive is Load for a document that a server sent, and returns the generation that it became. Such a document may not name files of
// this machine, because what is in them would be sent to where the document says.
func (l *Loop) Receive(name string, text []byte) (generation uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	spec, document, err := config.Decode[lb.Spec](name, text)
	if err != nil {
		return 0, l.failLocked(err)
	}
	for i := range spec.Services {
		if cluster := spec.Services[i].Cluster; cluster != nil && cluster.TokenFile != "" {
			path := fmt.Sprintf("services[%d].cluster.token_file", i)
			return 0, l.failLocked(document.Errorf(path, "a configuration from a server names no files of this machine; remove it, and set $WEIR_ADMIN_TOKEN"))
		}
	}
	if spec.Announce != nil && spec.Announce.BGP != nil {
		for i := range spec.Announce.BGP.Neighbours {
			if n := &spec.Announce.BGP.Neighbours[i]; n.PasswordFile != "" {
				path := fmt.Sprintf("announce.bgp.neighbours[%d].password_file", i)
				return 0, l.failLocked(document.Errorf(path, "a configuration from a server names no files of this machine; remove it, and write password_env"))
			}
		}
	}
	if spec.Sync != nil && spec.Sync.KeyFile != "" {
		return 0, l.failLocked(document.Errorf("sync.key_file", "a configuration from a server names no files of this machine; remove it, and write key_env"))
	}
	if err := l.reloadLocked(spec, document); err != nil {
		return 0, err
	}
	l.doc.readOnly, l.doc.name, l.doc.text, l.doc.base = "it comes from "+name+" (--source); change it there", name, text, nil
	l.eventLocked(change{by: name, action: "source"})
	return l.applied.Load().Generation, nil
}

// newsLocked wakes those who wait for a change of Applied.
func (l *Loop) newsLocked() {
	close(l.news)
	l.news = make(chan struct{})
}

// Applied returns which generation the data path has applied, and a channel that is closed when that changes, or when another
// configuration is refused.
func (l *Loop) Applied() (v1.Applied, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := v1.Applied{}
	if snapshot := l.applied.Load(); snapshot != nil {
		appliedAt := l.appliedAt
		a.Generation, a.AppliedAt = snapshot.Generation, &appliedAt
	}
	switch {
	case l.failure != nil:
		a.Error = l.failure.Error()
	case l.refusal != nil:
		a.Error = l.refusal.Error()
	}
	return a, l.news
}

// appliedEvery is how often WatchApplied repeats itself without a change, so that a client sees that it is still there.
const appliedEvery = 10 * time.Second

// WatchApplied writes what Applied returns, now and at each change, until ctx ends or a write fails. A client that reads slowly gets the
// newest state only.
func (l *Loop) WatchApplied(ctx context.Context, write func(line any, flush bool) error) error {
	ticker := time.NewTicker(appliedEvery)
	defer ticker.Stop()
	for {
		now, changed := l.Applied()
		if err := write(now, true); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
		}
	}
}
