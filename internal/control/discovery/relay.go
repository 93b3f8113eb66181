package discovery

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// relay is another server that gives the shared configuration to nodes of its own.
type relay struct {
	stream *stream
	nodes  map[string]NodeStatus // that are connected to it, by its last report
}

// relay streams the shared configuration to another server, as watch does to a node.
func (s *Server) relay(w http.ResponseWriter, r *http.Request, name string) {
	applied := r.URL.Query().Get("applied")
	if !validVersion(applied) {
		s.reject(w, http.StatusBadRequest, "applied: no version")
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	own := &relay{stream: &stream{wake: make(chan struct{}, 1), end: cancel}}
	s.mu.Lock()
	before := s.relays[name]
	if before == nil && len(s.relays) >= maxRelays {
		s.mu.Unlock()
		s.reject(w, http.StatusServiceUnavailable, "too many relays")
		return
	}
	if before != nil {
		before.stream.end()
		own.nodes = before.nodes // until it reports, in a moment
	}
	s.relays[name] = own
	s.mu.Unlock()
	defer s.endRelay(name, own)
	s.options.Log.Info("relay connected", "relay", name, "client", r.RemoteAddr)
	s.options.Log.Info("relay disconnected", "relay", name, "reason", s.answer(ctx, w, "", own.stream, applied))
}

// endRelay forgets the nodes of a relay whose connection has ended.
func (s *Server) endRelay(name string, own *relay) {
	s.mu.Lock()
	if s.relays[name] != own {
		s.mu.Unlock()
		return
	}
	delete(s.relays, name)
	s.changedLocked()
	s.mu.Unlock()
	s.notify(NodeStatus{})
}

// relayed takes the report of a relay: all nodes that are connected to it.
func (s *Server) relayed(w http.ResponseWriter, r *http.Request, name string) {
	var report relayed
	var body bytes.Buffer
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxRelayed))
	if err == nil {
		err = json.Unmarshal(body.Bytes(), &report)
	}
	if err != nil || len(report.Nodes) > MaxNodes || slices.ContainsFunc(report.Nodes, func(n relayedNode) bool {
		return !validNode(n.Node) || !validVersion(n.Applied) || !validVersion(n.Refused)
	}) {
		s.reject(w, http.StatusBadRequest, "the body is no report of a relay")
		return
	}
	s.mu.Lock()
	own := s.relays[name]
	if own == nil {
		s.mu.Unlock()
		s.reject(w, http.StatusConflict, "the relay is not connected")
		return
	}
	changed := own.take(&report, s.options.Now())
	s.changedLocked()
	s.mu.Unlock()
	for _, status := range changed {
		s.notify(status)
	}
	w.WriteHeader(http.StatusNoContent)
}

// take replaces the nodes of a relay and returns those that are new or have changed; one without a name stands for those that are gone.
func (r *relay) take(report *relayed, now time.Time) (changed []NodeStatus) {
	next := make(map[string]NodeStatus, len(report.Nodes))
	for _, n := range report.Nodes {
		status := NodeStatus{
			Node: n.Node, Connected: true, Applied: n.Applied, Generation: n.Generation, Refused: n.Refused, Error: shortened(n.Error, maxRelayedReason), Seen: now,
		}
		old, known := r.nodes[n.Node]
		if old.Seen = now; !known || old != status {
			changed = append(changed, status)
		} else {
			status.Seen = r.nodes[n.Node].Seen
		}
		next[n.Node] = status
	}
	if len(next) != len(r.nodes) || len(changed) > 0 {
		changed = append(changed, NodeStatus{})
	}
	r.nodes = next
	return changed
}

// table is the report of a server that is a relay.
func (s *Server) table() (report relayed, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	report.Nodes = []relayedNode{}
	for name, n := range s.nodes {
		if n.stream != nil {
			status := &n.status
			report.Nodes = append(report.Nodes, relayedNode{name, status.Applied, status.Generation, status.Refused, shortened(status.Error, maxRelayedReason)})
		}
	}
	return report, s.changed
}

// reportNodes tells the server which nodes are connected to the relay, and what is in force there, now and whenever it changes, until ctx ends
// or that fails.
func (w *Watcher) reportNodes(ctx context.Context, client *http.Client) error {
	var last []byte
	for {
		report, changed := w.Relay.table()
		slices.SortFunc(report.Nodes, func(a, b relayedNode) int { return bytes.Compare([]byte(a.Node), []byte(b.Node)) })
		body, err := json.Marshal(report)
		if err != nil {
			return err
		}
		if !bytes.Equal(body, last) {
			if err := w.post(ctx, client, relayedPath, body); err != nil {
				return err
			}
			last = body
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// pinned makes a connection end unless the server shows this certificate, which stands for its name and authorities: those of a relay's own
// service are the same, at another address.
func pinned(certificate func() ([]byte, error)) func(tls.ConnectionState) error {
	return func(c tls.ConnectionState) error {
		want, err := certificate()
		if err != nil {
			return err
		}
		if len(c.PeerCertificates) == 0 || !bytes.Equal(c.PeerCertificates[0].Raw, want) {
			return errors.New("the service shows another certificate than this one's")
		}
		if now := time.Now(); now.After(c.PeerCertificates[0].NotAfter) {
			return x509.CertificateInvalidError{Cert: c.PeerCertificates[0], Reason: x509.Expired, Detail: fmt.Sprintf("now %v", now)}
		}
		return nil
	}
}
