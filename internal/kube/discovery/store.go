package discovery

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// store has the configurations of a service and who watches them.
type store struct {
	mu       sync.Mutex // guards what follows, and the pending sets of the watchers
	configs  map[ID][]byte
	watchers map[*subscription]struct{}
	sources  map[string]int // watchers of each client address
	stats    ServerStats
}

// subscription is one watcher. It has no queue: only the names of what it has to read again.
type subscription struct {
	id      ID     // without a name: all of the namespace, or all
	node    string // empty: unknown
	source  string // client address
	pending map[ID]struct{}
	wake    chan struct{}
}

// covers reports whether a subscription is about a configuration.
func (s *subscription) covers(id ID) bool {
	return (s.id.Namespace == "" || s.id.Namespace == id.Namespace) && (s.id.Name == "" || s.id.Name == id.Name)
}

// notifyLocked marks a configuration as changed for a subscription.
func (s *subscription) notifyLocked(id ID) {
	s.pending[id] = struct{}{}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

var (
	errFull     = errors.New("the service has as many watchers as it can")
	errShare    = errors.New("this address has as many watchers as one address may have")
	errTooLong  = fmt.Errorf("the configuration is longer than %d bytes", MaxConfig)
	errTooMany  = fmt.Errorf("the service has %d configurations already", MaxConfigs)
	errNameless = errors.New("the configuration has no namespace and name of Kubernetes")
)

// set stores a configuration and wakes its watchers if it differs from the one before.
func (s *store) set(id ID, config []byte) error {
	switch {
	case id.Name == "" || !id.valid():
		return fmt.Errorf("%q: %w", id, errNameless)
	case len(config) > MaxConfig:
		return fmt.Errorf("%v: %w", id, errTooLong)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.configs[id]
	if !known && len(s.configs) >= MaxConfigs {
		return fmt.Errorf("%v: %w", id, errTooMany)
	}
	if known && bytes.Equal(before, config) {
		return nil
	}
	s.configs[id] = bytes.Clone(config)
	s.stats.Changes++
	s.changedLocked(id)
	return nil
}

func (s *store) changedLocked(id ID) {
	for w := range s.watchers {
		if w.covers(id) {
			w.notifyLocked(id)
		}
	}
}

func (s *store) remove(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.configs[id]; known {
		delete(s.configs, id)
		s.stats.Changes++
		s.changedLocked(id)
	}
}

// again wakes the watchers that run at a node.
func (s *store) again(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if w.node != node || node == "" {
			continue
		}
		for id := range s.configs {
			if w.covers(id) {
				w.notifyLocked(id)
			}
		}
	}
}

// get returns a configuration; the caller does not change it.
func (s *store) get(id ID) (config []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	config, ok = s.configs[id]
	return config, ok
}

// list returns the configurations of a namespace, or all, in the order of their names.
func (s *store) list(namespace string) (all [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range sorted(s.configs) {
		if namespace == "" || id.Namespace == namespace {
			all = append(all, s.configs[id])
		}
	}
	return all
}

func sorted[V any](of map[ID]V) []ID {
	return slices.SortedFunc(maps.Keys(of), func(a, b ID) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// subscribe adds a watcher, for which everything it covers is pending.
func (s *store) subscribe(id ID, node, source string) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sources[source] >= MaxWatchersPerAddress:
		s.stats.Refused++
		return nil, errShare
	case len(s.watchers) >= MaxWatchers:
		s.stats.Refused++
		return nil, errFull
	}
	w := &subscription{id: id, node: node, source: source, pending: map[ID]struct{}{}, wake: make(chan struct{}, 1)}
	s.watchers[w] = struct{}{}
	s.sources[source]++
	for id := range s.configs {
		if w.covers(id) {
			w.notifyLocked(id)
		}
	}
	return w, nil
}

func (s *store) unsubscribe(w *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
	if s.sources[w.source]--; s.sources[w.source] == 0 {
		delete(s.sources, w.source)
	}
}

// change is a configuration that a watcher has to be sent; config is nil if it was deleted.
type change struct {
	id     ID
	config []byte
}

// changes returns what is pending for a watcher, in the order of names, and marks it as sent.
func (s *store) changes(w *subscription) (all []change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range sorted(w.pending) {
		all = append(all, change{id, s.configs[id]})
	}
	clear(w.pending)
	return all
}
