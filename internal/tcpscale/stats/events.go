package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// watcher is one open GET /api/events.
type watcher struct{ states chan []byte } // closed: go away

const (
	watcherBacklog = 8 // states that wait for one that does not read
	watcherWrite   = 5 * time.Second
)

// watch enters a watcher whose first event is the state of now; nil: all places are taken.
func (s *Service) watch(now time.Time) *watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= s.config.MaxWatchers {
		s.dropped.Watchers++
		return nil
	}
	w := &watcher{make(chan []byte, watcherBacklog)}
	s.watchers[w] = struct{}{}
	s.age(now)
	w.states <- event(s.state(now))
	return w
}

// unwatch takes a watcher out. One that is cut off as it does not read counts as slow, whether its backlog was full first or
// the time of a write was over.
func (s *Service) unwatch(w *watcher, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.watchers[w]; there && errors.Is(why, os.ErrDeadlineExceeded) {
		s.dropped.Slow++
	}
	delete(s.watchers, w)
}

// publish gives the state to each watcher, encoded once; one whose backlog is full is sent away.
func (s *Service) publish(now time.Time) {
	if len(s.watchers) == 0 {
		return
	}
	text := event(s.state(now))
	for w := range s.watchers {
		select {
		case w.states <- text:
		default:
			s.dropped.Slow++
			delete(s.watchers, w)
			close(w.states)
		}
	}
}

func (s *Service) closeWatchers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		delete(s.watchers, w)
		close(w.states)
	}
}

// event is a state as one server-sent event.
func event(st State) []byte {
	data, err := json.Marshal(st)
	if err != nil {
		return fmt.Appendf(nil, "event: problem\ndata: %q\n\n", err)
	}
	return fmt.Appendf(nil, "event: state\ndata: %s\n\n", data)
}

func (s *Service) serveEvents(w http.ResponseWriter, r *http.Request) {
	me := s.watch(s.config.Now())
	if me == nil {
		refuse(w, http.StatusServiceUnavailable, "every place of a watcher is taken: close a page, or raise --max-watchers")
		return
	}
	var err error
	defer func() { s.unwatch(me, err) }()
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the server's is for requests, this one stays
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies of nginx's kind would hold it back
	text := []byte("retry: 2000\n\n")
	for {
		_ = out.SetWriteDeadline(time.Now().Add(watcherWrite))
		if _, err = w.Write(text); err != nil {
			return
		}
		if err = out.Flush(); err != nil {
			return
		}
		var open bool
		select {
		case <-r.Context().Done():
			return
		case text, open = <-me.states:
			if !open {
				return
			}
		}
	}
}
