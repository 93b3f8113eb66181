package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/kube/world"
)

const (
	// DefaultThrottle is the shortest time between the begins of two renders.
	DefaultThrottle = 20 * time.Millisecond
	// longestPause is how long writes that fail are left alone at most.
	longestPause = 30 * time.Second
)

// loop renders the world whenever it is dirty.
type loop struct {
	controllers []Controller
	lister      lister
	client      client.Client
	recorder    events.EventRecorder
	log         *slog.Logger
	now         func() time.Time
	throttle    time.Duration

	dirty    chan struct{} // capacity 1
	rendered chan struct{} // closed after the first render
	once     sync.Once
	history  []history // of each controller
	applied  *applies
	reported map[eventKey]bool // events of the last render

	counters counters
}

func newLoop(controllers []Controller, lister lister, writer client.Client, recorder events.EventRecorder, log *slog.Logger, throttle time.Duration) *loop {
	return &loop{
		controllers: controllers, lister: lister, client: writer, recorder: recorder, log: log, now: time.Now, throttle: cmp.Or(throttle, DefaultThrottle),
		dirty: make(chan struct{}, 1), rendered: make(chan struct{}), history: make([]history, len(controllers)), applied: newApplies(),
	}
}

// mark makes the next render happen.
func (l *loop) mark() {
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// Start renders until ctx ends. It is called once this process is the leader.
func (l *loop) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	failed := make(chan error, len(l.controllers))
	for i := range l.controllers {
		if p := l.controllers[i].Publisher; p != nil {
			group.Go(func() {
				if err := p.Run(ctx, l.mark); err != nil && ctx.Err() == nil {
					failed <- fmt.Errorf("publish for %s: %w", l.controllers[i].Name, err)
				}
			})
		}
	}
	l.mark()
	pause := l.throttle
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-l.dirty:
		}
		began := l.now()
		if err := l.render(ctx); err != nil && ctx.Err() == nil {
			l.log.Error("the state of the world was not written whole; it is tried again", "error", err, "after", pause)
			pause = min(2*max(pause, 100*time.Millisecond), longestPause)
			time.AfterFunc(pause, l.mark)
		} else {
			pause = l.throttle
			l.once.Do(func() { close(l.rendered) })
		}
		if !wait(ctx, l.throttle-l.now().Sub(began)) {
			return nil
		}
	}
}

// wait returns false if ctx ends before the time is over.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// NeedLeaderElection makes the manager start the loop on the leader alone.
func (l *loop) NeedLeaderElection() bool { return true }

// render lists, translates and writes once. Its error joins those of all writes: one that fails stops no other.
func (l *loop) render(ctx context.Context) (err error) {
	var planes [][]v1.OperatorPlane
	defer func() { l.counters.ended(planes, err) }()
	began := l.now()
	objects, err := l.lister.list(ctx)
	if err != nil {
		return err
	}
	w := world.New(l.now(), objects...)
	results := make([]Result, len(l.controllers))
	var failures []error
	for i := range l.controllers {
		running, err := l.translate(i, w, &results[i])
		if err != nil {
			failures = append(failures, err)
		}
		planes = append(planes, planesOf(results[i].Configs, running))
	}
	translated := l.now()
	failures = append(failures, l.writeObjects(ctx, results)...)
	failures = append(failures, l.writeStatuses(ctx, results)...)
	l.writeEvents(results)
	l.counters.rendered(len(objects), translated.Sub(began), l.now().Sub(translated))
	return errors.Join(failures...)
}

// translate calls one controller and publishes its configurations. It returns what its data planes run.
func (l *loop) translate(i int, w *world.World, result *Result) (running map[string]string, err error) {
	c := &l.controllers[i]
	if c.Publisher != nil {
		running = c.Publisher.Applied()
	}
	var refused map[string]string
	if p, ok := c.Publisher.(Refuser); ok {
		refused = p.Refused()
	}
	*result = c.Translate(w.With(l.history[i].applied(running), refused))
	if c.Publisher == nil {
		return nil, nil
	}
	l.history[i].add(result.Configs)
	if err := c.Publisher.Publish(result.Configs); err != nil {
		return running, fmt.Errorf("publish for %s: %w", c.Name, err)
	}
	return running, nil
}

func planesOf(configs []Config, running map[string]string) (planes []v1.OperatorPlane) {
	for i := range configs {
		planes = append(planes, v1.OperatorPlane{Name: configs[i].Plane, Published: configs[i].Revision(), Applied: running[configs[i].Plane]})
	}
	return planes
}
