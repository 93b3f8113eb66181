package turn

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// gatewayLoop keeps a gateway, and the HTTP endpoints of a STUNner file, at the newest valid configuration.
type gatewayLoop struct {
	source    *gatewaySource
	gateway   *gateway.Gateway
	endpoints *stunnerEndpoints
	log       *slog.Logger
	levels    *atomic.Pointer[stunnerd.LogLevels]
	draining  chan struct{} // closed when a drain begins: configurations are not followed any more

	mu     sync.Mutex // guards the fields below
	plan   *files.GatewayPlan
	noted  map[string]time.Time // when a note was logged
	status v1.TurnConfigStatus
}

// started records the configuration with which the gateway was opened.
func (l *gatewayLoop) started(plan *files.GatewayPlan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status.File = l.source.name()
	l.appliedLocked(plan)
}

func (l *gatewayLoop) appliedLocked(plan *files.GatewayPlan) {
	l.levels.Store(&plan.Log)
	l.noteLocked(plan.Notes, time.Now())
	l.plan = plan
	s := &l.status
	s.Generation++
	s.Applied, s.Error, s.Failed, s.Notes, s.URIs = time.Now(), "", time.Time{}, plan.Notes, nil
	filled := plan.Gateway.WithDefaults()
	for i := range filled.Listeners {
		s.URIs = append(s.URIs, filled.Listeners[i].URI())
	}
}

// A note of the configuration is logged once per noteEvery, however often the file is read again, and at most maxNotes of them
// in that time, because an operator may rewrite a file every second. GET /status has the notes of the newest configuration.
const (
	noteEvery = 10 * time.Minute
	maxNotes  = 256
)

func (l *gatewayLoop) noteLocked(notes []string, now time.Time) {
	for note, at := range l.noted {
		if now.Sub(at) >= noteEvery {
			delete(l.noted, note)
		}
	}
	if l.noted == nil {
		l.noted = map[string]time.Time{}
	}
	for _, note := range notes {
		if _, already := l.noted[note]; already || len(l.noted) >= maxNotes {
			continue
		}
		l.noted[note] = now
		l.log.Warn("configuration", "note", note)
	}
}

// now returns a copy for the admin API.
func (l *gatewayLoop) now() v1.TurnConfigStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	status := l.status
	if l.source.found != nil {
		found := l.source.found.status()
		status.Discovery = &found
	}
	return status
}

func (l *gatewayLoop) samples() []metrics.Sample { return metrics.Of(l.now()) }

// run watches the file and the certificates that it names until ctx ends.
func (l *gatewayLoop) run(ctx context.Context, text []byte) error {
	if l.source.found != nil {
		return l.follow(ctx)
	}
	if l.source.file == nil {
		<-ctx.Done()
		return nil
	}
	follow := &followed{reload: func() { l.source.file.Reload() }, log: l.log}
	defer follow.end()
	follow.paths(ctx, l.certificates())
	return l.source.file.Watch(ctx, text, func(text []byte, err error) {
		l.take(text, err)
		follow.paths(ctx, l.certificates())
	})
}

// take applies the current contents of the file and reports whether that succeeded. If not, it records the error and nothing changes.
func (l *gatewayLoop) take(text []byte, err error) bool {
	var plan *files.GatewayPlan
	if err == nil {
		plan, err = l.source.parse(text)
	}
	var change v1.TurnChange
	if err == nil {
		change, err = l.apply(plan)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.status.Failures++
		l.status.Error, l.status.Failed = err.Error(), time.Now()
		l.log.Error("configuration not taken over, the one before it stays", "error", err)
		return false
	}
	l.appliedLocked(plan)
	l.status.Reloads++
	l.status.Change = &change
	l.log.Info("configuration taken over", "generation", l.status.Generation, "listeners", len(plan.Gateway.Listeners),
		"added", change.Added, "removed", change.Removed, "restarted", change.Restarted, "certificates", change.Certificates,
		"ended", change.Ended, "permissions_suspended", change.Permissions, "channels_suspended", change.Channels, "resumed", change.Resumed)
	for _, note := range change.Notes {
		l.log.Warn("configuration", "note", note)
	}
	return true
}

func (l *gatewayLoop) apply(plan *files.GatewayPlan) (change v1.TurnChange, err error) {
	back, err := l.endpoints.change(plan)
	if err != nil {
		return change, plan.Document.Locate(err)
	}
	if change, err = l.gateway.Apply(plan.Gateway); err != nil {
		back()
		return change, plan.Document.Locate(err)
	}
	return change, nil
}

// certificates returns the files that the configuration in force names.
func (l *gatewayLoop) certificates() (paths []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.plan.Gateway.Listeners {
		if at := &l.plan.Gateway.Listeners[i]; at.Certificate != "" {
			paths = append(paths, at.Certificate, at.Key)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// followed are the files whose changes cause the configuration to be read again.
type followed struct {
	reload func()
	log    *slog.Logger

	watched []string
	stop    context.CancelFunc
	group   sync.WaitGroup
}

// paths replaces the set of watched files.
func (f *followed) paths(ctx context.Context, paths []string) {
	if slices.Equal(paths, f.watched) {
		return
	}
	f.end()
	ctx, f.stop = context.WithCancel(ctx)
	f.watched = paths
	for _, path := range paths {
		file := config.NewFile(path)
		seen, _ := file.Read() // a file that cannot be read now is read again later
		f.group.Go(func() {
			if err := file.Watch(ctx, seen, func([]byte, error) { f.reload() }); err != nil {
				f.log.Warn("a certificate is not followed; send SIGHUP after a change", "file", path, "error", err)
			}
		})
	}
}

func (f *followed) end() {
	if f.stop != nil {
		f.stop()
		f.group.Wait()
	}
}
