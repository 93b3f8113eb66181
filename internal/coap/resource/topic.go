package resource

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Topic notifies the observers of resources that have changed (RFC 7641). The zero Topic is ready; its fields must not
// change while a Server uses it. Its methods are safe from any goroutine, the methods of a Request included.
type Topic struct {
	// Every is the period in which the resource changes by itself; 0: never.
	Every time.Duration
	// Confirmable sends every notification as a confirmable message. Otherwise one in ConfirmAfter is, and at least one every
	// ConfirmEvery.
	Confirmable bool

	mu      sync.Mutex
	servers map[*Server]bool // that have observers; true: a call of changed is on its way; guarded by mu
}

// Changed sends every observer the present state, soon. Changes in quick succession may become one notification.
func (t *Topic) Changed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, posted := range t.servers {
		if !posted && s.cfg.Post != nil {
			t.servers[s] = s.cfg.Post(func() { s.changed(t) })
		}
	}
}

// End ends every observation, with a last notification of a code that is no success, or silently with message.Empty.
func (t *Topic) End(code message.Code) {
	t.mu.Lock()
	servers := slices.Collect(maps.Keys(t.servers))
	t.mu.Unlock()
	for _, s := range servers {
		if s.cfg.Post != nil {
			s.cfg.Post(func() { s.ended(t, code) })
		}
	}
}

func (t *Topic) join(s *Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.servers == nil {
		t.servers = map[*Server]bool{}
	}
	t.servers[s] = false
}

func (t *Topic) leave(s *Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.servers, s)
}

// received takes note that a call of changed has arrived: the next change needs another one.
func (t *Topic) received(s *Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.servers[s]; ok {
		t.servers[s] = false
	}
}
