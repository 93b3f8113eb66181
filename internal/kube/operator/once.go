package operator

import "sync"

// maxOnce bounds the reasons that are remembered; beyond it they are forgotten, and logged once more.
const maxOnce = 1024

// texts is a bounded set of texts, safe for concurrent use.
type texts struct {
	mu   sync.Mutex
	seen map[string]bool
}

// add returns whether the text is new.
func (s *texts) add(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[text] {
		return false
	}
	if s.seen == nil || len(s.seen) >= maxOnce {
		s.seen = map[string]bool{}
	}
	s.seen[text] = true
	return true
}
