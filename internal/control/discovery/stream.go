package discovery

import (
	"context"
	"net/http"
	"time"
)

// watch streams the configurations of a node until one end closes the connection, or the node connects again.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, name string) {
	applied := r.URL.Query().Get("applied")
	if !validVersion(applied) {
		s.reject(w, http.StatusBadRequest, "applied: no version")
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	own := &stream{wake: make(chan struct{}, 1), end: cancel}
	if !s.begin(name, own, applied) {
		s.reject(w, http.StatusServiceUnavailable, "too many nodes")
		return
	}
	defer s.end(name, own)
	s.options.Log.Info("load balancer connected", "node", name, "client", r.RemoteAddr, "applied", applied)
	s.options.Log.Info("load balancer disconnected", "node", name, "reason", s.answer(ctx, w, name, own, applied))
}

// answer begins the stream of a node, or of a relay, which has no name here, sends until it ends, and returns why.
func (s *Server) answer(ctx context.Context, w http.ResponseWriter, name string, own *stream, applied string) (reason string) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the server's would end a stream that has nothing to read
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	if err := s.stream(ctx, w, control, name, own, applied); err != nil {
		return err.Error()
	}
	return "its connection has ended"
}

// begin makes a stream that of its node.
func (s *Server) begin(name string, own *stream, applied string) bool {
	s.mu.Lock()
	n := s.nodeLocked(name)
	if n == nil {
		s.mu.Unlock()
		return false
	}
	if n.stream != nil {
		n.stream.end()
	}
	n.stream = own
	n.status.Connected, n.status.Seen = true, s.options.Now()
	if n.status.Applied != applied {
		n.status.Applied, n.status.Generation = applied, 0 // it has restarted; its report follows
	}
	s.changedLocked()
	status := n.status
	s.mu.Unlock()
	s.notify(status)
	return true
}

func (s *Server) end(name string, own *stream) {
	s.mu.Lock()
	n := s.nodes[name]
	if n == nil || n.stream != own {
		s.mu.Unlock()
		return
	}
	n.stream, n.status.Connected, n.status.Seen = nil, false, s.options.Now()
	s.changedLocked()
	status := n.status
	s.mu.Unlock()
	s.notify(status)
}

// stream sends what the node should have whenever that is not what it was sent last, else a sign of life.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, control *http.ResponseController, name string, own *stream, sent string) error {
	ticker := time.NewTicker(s.alive)
	defer ticker.Stop()
	line := []byte("{}\n")
	for {
		s.mu.Lock()
		if v := s.wantedLocked(name); v.id != "" && v.id != sent {
			sent, line = v.id, v.line
			s.stats.Sent++
		}
		s.mu.Unlock()
		if line != nil {
			if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
				return err
			}
			if _, err := w.Write(line); err != nil {
				return err
			}
			if err := control.Flush(); err != nil {
				return err
			}
			line = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-own.wake:
		case <-ticker.C:
			line = []byte("{}\n")
		}
	}
}
