package names

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// How names are looked up.
const (
	DefaultRefresh = 5 * time.Second // between two look-ups of a name, as in STUNner
	Timeout        = 3 * time.Second // of one look-up
	parallel       = 16              // concurrent look-ups
	goneAfter      = 3               // consecutive answers "no such name" after which the addresses of a name are dropped
)

// Options of a Set.
type Options struct {
	Lookup       func(ctx context.Context, name string) ([]netip.Addr, error) // nil: the system's resolver
	MaxAddresses int                                                          // of one name; the lowest of an answer are used
	Log          *slog.Logger                                                 // nil: silent
}

// Wanted says which names are looked up, and how often.
type Wanted map[string]time.Duration

// Set follows names. All methods are safe for concurrent use.
type Set struct {
	options Options
	wake    chan struct{} // capacity 1: the times of the next look-ups have changed

	mu    sync.Mutex // guards names
	names map[string]*name
}

// name is what is known about one DNS name.
type name struct {
	v1.DNSName
	refresh time.Duration
	next    time.Time // when it is looked up again
	gone    int       // consecutive answers "no such name"
	since   time.Time // of the last answer with addresses; before the first one, when the name came
}

// New returns a Set without names.
func New(o Options) *Set {
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Set{options: o, wake: make(chan struct{}, 1), names: map[string]*name{}}
}

// Status returns what is known about each name, sorted.
func (s *Set) Status() []v1.DNSName {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, now := make([]v1.DNSName, 0, len(s.names)), time.Now()
	for _, n := range s.names {
		status := n.DNSName
		status.Age = max(0, now.Sub(n.since)).Seconds()
		status.Addresses = slices.Clone(status.Addresses)
		list = append(list, status)
	}
	slices.SortFunc(list, func(a, b v1.DNSName) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Len returns the number of names.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.names)
}

// Addresses returns those of each name, sorted. The slices must not be changed.
func (s *Set) Addresses() map[string][]netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string][]netip.Addr, len(s.names))
	for n, known := range s.names {
		all[n] = known.Addresses
	}
	return all
}

// Prepare looks up the names that are new, for Commit. It may take Timeout per 16 of them.
func (s *Set) Prepare(ctx context.Context, wanted Wanted) Answers {
	var fresh []string
	s.mu.Lock()
	for n := range wanted {
		if s.names[n] == nil {
			fresh = append(fresh, n)
		}
	}
	s.mu.Unlock()
	return s.lookup(ctx, fresh)
}

// Commit follows exactly the wanted names from now on. A new name without an answer is looked up by Run at once.
func (s *Set) Commit(wanted Wanted, answers Answers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for n := range s.names {
		if _, ok := wanted[n]; !ok {
			delete(s.names, n)
		}
	}
	for n, refresh := range wanted {
		known := s.names[n]
		if known == nil {
			known = &name{DNSName: v1.DNSName{Name: n}, next: now, since: now}
			s.names[n] = known
			if a, ok := answers[n]; ok {
				s.takeLocked(known, a, now)
				known.next = now.Add(refresh)
			}
		}
		known.refresh = refresh
		if next := now.Add(refresh); next.Before(known.next) {
			known.next = next
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run looks names up until ctx ends. It calls changed after addresses have changed; false: it is called again after the next look-ups.
func (s *Set) Run(ctx context.Context, changed func() bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	stale := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		due, next := s.due(time.Now())
		if len(due) > 0 {
			stale = s.refresh(ctx, due) || stale
			if stale && ctx.Err() == nil {
				stale = !changed()
			}
			_, next = s.due(time.Now())
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// due returns the names to look up now, and when the next one is due; zero: never.
func (s *Set) due(now time.Time) (names []string, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, known := range s.names {
		if !now.Before(known.next) {
			names = append(names, n)
			next = now
		} else if next.IsZero() || known.next.Before(next) {
			next = known.next
		}
	}
	return names, next
}

// refresh looks names up again, and reports whether an address has changed.
func (s *Set) refresh(ctx context.Context, names []string) bool {
	answers := s.lookup(ctx, names)
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, now := false, time.Now()
	for n, answer := range answers {
		if known := s.names[n]; known != nil && ctx.Err() == nil {
			changed = s.takeLocked(known, answer, now) || changed
			known.next = now.Add(known.refresh)
		}
	}
	return changed
}
