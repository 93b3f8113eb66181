package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
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

	secrets  *secrets
	interval time.Duration   // after which Secrets are read again
	elected  <-chan struct{} // closed when this process is the leader

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

// Start renders until ctx ends. The leader writes; the others publish what is published everywhere.
func (l *loop) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { l.secrets.follow(ctx, l.interval) })
	group.Go(func() {
		select {
		case <-l.elected:
			l.mark()
		case <-ctx.Done():
		}
	})
	failed := make(chan error, len(l.controllers))
	for i := range l.controllers {
		if c := &l.controllers[i]; c.Publisher != nil {
			group.Go(func() {
				if err := l.publish(ctx, c); err != nil && ctx.Err() == nil {
					failed <- fmt.Errorf("publish for %s: %w", c.Name, err)
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
		// It takes half a core at most: the pause is as long as the work.
		took := l.now().Sub(began)
		if !wait(ctx, max(l.throttle-took, took)) {
			return nil
		}
	}
}

// publish runs the publisher of a controller until ctx ends, or it fails in the leader. In another operator it is tried again.
func (l *loop) publish(ctx context.Context, c *Controller) error {
	relayer, ok := c.Publisher.(Relayer)
	if !c.Everywhere && (!ok || !relayer.Relays()) {
		select {
		case <-l.elected:
		case <-ctx.Done():
			return nil
		}
	}
	for reported := false; ; reported = true {
		leads := l.leads()
		err := c.Publisher.Run(ctx, l.mark)
		if err == nil || leads {
			return err
		}
		if !reported && ctx.Err() == nil {
			l.log.Warn("this operator, which is not the leader, cannot publish; it is tried again", "controller", c.Name, "error", err)
		}
		if !wait(ctx, time.Second) {
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

// NeedLeaderElection makes the manager start the loop in every operator: those that do not lead have their caches ready, and publish.
func (l *loop) NeedLeaderElection() bool { return false }

// leads says whether this process is the leader; one that is no more ends.
func (l *loop) leads() bool {
	select {
	case <-l.elected:
		return true
	default:
		return false
	}
}

// render lists, translates and writes once. Its error joins those of all writes: one that fails stops no other.
func (l *loop) render(ctx context.Context) (err error) {
	var planes [][]v1.OperatorPlane
	leads := l.leads()
	defer func() { l.counters.ended(leads, planes, err) }()
	began := l.now()
	objects, err := l.lister.list(ctx)
	if err != nil {
		return err
	}
	w := world.New(l.now(), objects...)
	if err := l.addSecrets(ctx, w); err != nil {
		return err
	}
	results := make([]Result, len(l.controllers))
	var failures []error
	for i := range l.controllers {
		if !leads && !l.controllers[i].Everywhere {
			planes = append(planes, nil)
			continue
		}
		running, err := l.translate(i, w, &results[i])
		if err != nil {
			failures = append(failures, err)
		}
		planes = append(planes, planesOf(results[i].Configs, running))
	}
	translated := l.now()
	if !leads {
		l.counters.rendered(len(objects), translated.Sub(began), 0)
		return errors.Join(failures...)
	}
	failures = append(failures, l.writeObjects(ctx, results)...)
	failures = append(failures, l.writeStatuses(ctx, results)...)
	l.writeEvents(results)
	l.counters.rendered(len(objects), translated.Sub(began), l.now().Sub(translated))
	return errors.Join(failures...)
}

// addSecrets reads the Secrets that controllers refer to.
func (l *loop) addSecrets(ctx context.Context, w *world.World) error {
	var names []types.NamespacedName
	for i := range l.controllers {
		if l.controllers[i].Secrets != nil {
			names = append(names, l.controllers[i].Secrets(w)...)
		}
	}
	found, err := l.secrets.read(ctx, names)
	if err != nil {
		return err
	}
	w.Add(found...)
	return nil
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
