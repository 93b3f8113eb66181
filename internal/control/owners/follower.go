package owners

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// QueryFunc requests the status of the node at an admin address. It must return when ctx ends (the timeout).
type QueryFunc func(ctx context.Context, cluster *lb.Cluster, admin string) (*v1.CoAPStatus, error)

// WatchFunc follows POST /owners of the node at an admin address: it calls each with every line, until each returns an error, the node ends
// or ctx does.
type WatchFunc func(ctx context.Context, cluster *lb.Cluster, admin string, each func(*v1.CoAPOwners) error) error

// Report is what has changed of one service: all owner ids of its queried backends, nil if it follows no cluster any more, and the
// overrides that are new, gone or other than before.
type Report struct {
	Service string
	Owned   map[string][]uint32 // by backend
	States  map[lb.Target]lb.Override
}

const (
	retry      = time.Second     // how long a refused report waits
	watchAgain = 5 * time.Second // from one attempt to follow a node to the next one: it may be an old one, or have no room
	silence    = 2 * v1.OwnersEvery
)

// Follower queries the nodes of the services that follow a cluster. Follow and Stop are for one goroutine, Status for any.
type Follower struct {
	ctx    context.Context // of all loops; ended by Stop
	cancel context.CancelFunc
	query  QueryFunc
	watch  WatchFunc // nil: nodes are only queried
	log    *slog.Logger
	report func(Report) error
	group  sync.WaitGroup

	memory Memory // of a process before this one, of services that are still to come
	keep   func(Memory) error

	mu       sync.Mutex // guards services and what is in them
	services map[string]*service

	keeping    sync.Mutex // held while keep is called
	keepFailed error      // the newest result of keep
}

// service is one that follows a cluster.
type service struct {
	cluster   lb.Cluster
	admins    map[string]string // by backend
	cancel    context.CancelFunc
	done      sync.WaitGroup
	wake      chan struct{} // capacity 1: something has changed
	nodes     map[string]*node
	counts    map[string]*counts
	reported  view
	conflict  string
	answered  time.Time // when a node has answered last; the start before that
	unknown   bool      // no node has answered yet
	announced bool      // as old, in the log
}

// counts are the queries of one node.
type counts struct {
	passed, failed uint64
	err            string // why the newest one failed; empty: it has not
}

// New returns a follower that queries nothing yet. report receives the changes of one service at a time; one that it refuses with an error
// is repeated, with what has changed meanwhile.
func New(ctx context.Context, query QueryFunc, log *slog.Logger, report func(Report) error) *Follower {
	if query == nil {
		query = func(context.Context, *lb.Cluster, string) (*v1.CoAPStatus, error) {
			return nil, errors.New("this program queries no nodes")
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	return &Follower{
		ctx: ctx, cancel: cancel, query: query, log: cmp.Or(log, slog.New(slog.DiscardHandler)), report: report, services: map[string]*service{},
	}
}

// Follow queries the nodes of a snapshot from now on. What is known of nodes that are still in it stays.
func (f *Follower) Follow(snapshot *lb.Snapshot) {
	wanted := map[string]bool{}
	for _, s := range snapshot.Services {
		if s.Cluster == nil {
			continue
		}
		wanted[s.Name] = true
		admins := adminsOf(s)
		old := f.services[s.Name] // only this goroutine writes the map
		if old != nil && old.cluster == *s.Cluster && maps.Equal(old.admins, admins) {
			continue
		}
		if old != nil {
			old.stop()
		}
		next := newService(s.Cluster, admins, old)
		if old == nil {
			f.recall(s.Name, next)
		}
		f.start(s.Name, next)
	}
	for name, s := range f.services {
		if !wanted[name] {
			s.stop()
			f.remove(name, s)
		}
	}
}

// newService returns a service that knows of its nodes what old knew of them.
func newService(cluster *lb.Cluster, admins map[string]string, old *service) *service {
	s := &service{
		cluster: *cluster, admins: admins, wake: make(chan struct{}, 1), nodes: map[string]*node{}, counts: map[string]*counts{},
		answered: time.Now(), unknown: true,
	}
	if old != nil {
		s.reported, s.answered, s.unknown = old.reported, old.answered, old.unknown
	}
	for name, admin := range admins {
		s.nodes[name], s.counts[name] = &node{}, &counts{}
		if old != nil && old.admins[name] == admin {
			s.nodes[name], s.counts[name] = old.nodes[name], old.counts[name]
		}
	}
	return s
}

func (s *service) stop() {
	s.cancel()
	s.done.Wait()
}

func (f *Follower) start(name string, s *service) {
	ctx, cancel := context.WithCancel(f.ctx)
	s.cancel = cancel
	f.mu.Lock()
	f.services[name] = s
	f.mu.Unlock()
	for backend, admin := range s.admins {
		s.run(f, func() { f.poll(ctx, name, s, backend, admin) })
	}
	s.run(f, func() { f.reports(ctx, name, s) })
	s.changed() // a node may be gone
}

func (s *service) run(f *Follower, loop func()) {
	s.done.Add(1)
	f.group.Go(func() {
		defer s.done.Done()
		loop()
	})
}

func (s *service) changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// remove forgets a service, with what was reported of it.
func (f *Follower) remove(name string, s *service) {
	f.mu.Lock()
	delete(f.services, name)
	f.mu.Unlock()
	gone := Report{Service: name, States: map[lb.Target]lb.Override{}}
	for backend := range s.reported.states {
		gone.States[lb.Target{Service: name, Backend: backend}] = lb.NoOverride
	}
	if err := f.report(gone); err != nil {
		f.log.Error("owners of a service that follows its cluster no more stay", "service", name, "error", err)
	}
}

// Stop ends all queries and waits for them. What was reported stays.
func (f *Follower) Stop() {
	f.cancel()
	f.group.Wait()
}

// Watch has the follower follow nodes with f, and query only those that cannot be followed. Call it before Follow.
func (f *Follower) Watch(watch WatchFunc) { f.watch = watch }

// poll follows one node, and queries it where that does not work, again and again.
func (f *Follower) poll(ctx context.Context, name string, s *service, backend, admin string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var watchAt time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(s.cluster.Every)
		a, err := f.once(ctx, s, admin)
		if ctx.Err() != nil {
			return
		}
		f.answered(name, s, backend, &a, err)
		if now := time.Now(); f.watch != nil && err == nil && !now.Before(watchAt) {
			watchAt = now.Add(watchAgain)
			f.stream(ctx, name, s, backend, admin)
			timer.Reset(max(0, s.cluster.Every-time.Since(now)))
		}
	}
}

// stream enters what a node reports by itself, until it ends or is silent. Why is not reported: the next query shows it.
func (f *Follower) stream(ctx context.Context, name string, s *service, backend, admin string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := silence + s.cluster.Timeout
	late := time.AfterFunc(limit, cancel)
	defer late.Stop()
	_ = f.watch(ctx, &s.cluster, admin, func(line *v1.CoAPOwners) error {
		late.Reset(limit)
		a, err := answerTo(line)
		if err == nil {
			f.answered(name, s, backend, &a, nil)
		}
		return err
	})
}

func (f *Follower) once(ctx context.Context, s *service, admin string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cluster.Timeout)
	defer cancel()
	status, err := f.query(ctx, &s.cluster, admin)
	if err != nil {
		return answer{}, err
	}
	return answerOf(status)
}

// answered enters the answer of a node, or why there is none.
func (f *Follower) answered(name string, s *service, backend string, a *answer, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, c := s.nodes[backend], s.counts[backend]
	changed := n.answers != (err == nil) || err == nil && (n.old || !n.equal(a))
	n.answers = err == nil
	if err != nil {
		c.failed++
		if c.err == "" {
			f.log.Warn("a node of the cluster does not answer", "service", name, "backend", backend, "error", err)
		}
		c.err = err.Error()
		if old := !n.last.IsZero() && time.Since(n.last) >= s.cluster.OldAfter; old && !n.old {
			n.old, changed = true, true
		}
		s.grows(f.log, name)
	} else {
		c.passed++
		c.err, n.answer, n.last, n.old = "", *a, time.Now(), false
		if s.announced {
			f.log.Info("the view of the cluster is new again", "service", name)
		}
		s.answered, s.unknown, s.announced = time.Now(), false, false
	}
	if changed {
		s.changed()
	}
}

// grows logs that the view has become old.
func (s *service) grows(log *slog.Logger, name string) {
	if age := time.Since(s.answered); !s.announced && age >= s.cluster.OldAfter {
		s.announced = true
		log.Warn("no node of the cluster answers, the last view stays", "service", name, "since", age.Round(time.Second))
	}
}

// reports passes changes on; those that come together form one report.
func (f *Follower) reports(ctx context.Context, name string, s *service) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		f.mu.Lock()
		next, unknown := viewOf(s.nodes), s.unknown
		s.conflict = next.conflict
		f.mu.Unlock()
		if !unknown {
			f.memorize()
		}
		if unknown || next.equal(&s.reported) {
			continue
		}
		if err := f.report(reportOf(name, &s.reported, &next)); err != nil {
			f.log.Error("owners of a cluster refused", "service", name, "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(retry):
			}
			s.changed()
			continue
		}
		if next.conflict != "" {
			f.log.Error("the cluster contradicts itself", "service", name, "error", next.conflict)
		}
		s.reported = next
	}
}

// reportOf is what changes between two views.
func reportOf(name string, from, to *view) Report {
	r := Report{Service: name, Owned: to.owned, States: map[lb.Target]lb.Override{}}
	for backend := range from.states {
		if _, stays := to.states[backend]; !stays {
			r.States[lb.Target{Service: name, Backend: backend}] = lb.NoOverride
		}
	}
	for backend, state := range to.states {
		if from.states[backend] != state {
			r.States[lb.Target{Service: name, Backend: backend}] = state
		}
	}
	return r
}
