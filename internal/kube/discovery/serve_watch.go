package discovery

import (
	"errors"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// maxInbound bounds a message of a watcher, which has nothing to say.
const maxInbound = 4096

// watch answers a watch until the client or the server ends it.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, id ID, node string) {
	if !websocket.IsWebSocketUpgrade(r) {
		writeError(w, http.StatusBadRequest, "a watch is a WebSocket: send Upgrade: websocket")
		return
	}
	if !s.begin() {
		writeError(w, http.StatusServiceUnavailable, "the service ends")
		return
	}
	defer s.clients.Done()
	sub, err := s.store.subscribe(id, node, source(r))
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer s.store.unsubscribe(sub)
	upgrader := websocket.Upgrader{HandshakeTimeout: s.times.write, ReadBufferSize: 1024, WriteBufferSize: 4096}
	conn, err := upgrader.Upgrade(w, r, nil) // it refuses pages of other origins, and answers what it refuses
	if err != nil {
		return
	}
	defer conn.Close()
	log := s.options.Log.With("client", r.RemoteAddr, "id", id.String())
	log.Info("config watcher", "node", node)
	gone := make(chan error, 1)
	go func() { gone <- s.discard(conn) }()
	err = s.send(conn, sub, gone)
	var late interface{ Timeout() bool }
	if errors.As(err, &late) && late.Timeout() {
		s.count(func(n *ServerStats) { n.Dropped++ })
	}
	log.Info("config watcher gone", "reason", reason(err))
}

func reason(err error) string {
	if err == nil {
		return "the service ends"
	}
	return shortened(err.Error())
}

// begin counts a watch in, unless the server has ended.
func (s *Server) begin() bool {
	s.endMu.Lock()
	defer s.endMu.Unlock()
	if s.closed {
		return false
	}
	s.clients.Add(1)
	return true
}

// discard reads what a watcher sends, so that its pings are answered and its end is seen.
func (s *Server) discard(conn *websocket.Conn) error {
	conn.SetReadLimit(maxInbound)
	alive := func(string) error { return conn.SetReadDeadline(time.Now().Add(s.times.wait)) }
	answer := conn.PingHandler()
	conn.SetPongHandler(alive)
	conn.SetPingHandler(func(payload string) error { return errors.Join(alive(""), answer(payload)) })
	_ = alive("")
	for {
		if _, _, err := conn.NextReader(); err != nil {
			return err
		}
	}
}

// send sends what changes, and pings, until the watcher is gone (its error) or the server ends (nil).
func (s *Server) send(conn *websocket.Conn, sub *subscription, gone <-chan error) error {
	ticker := time.NewTicker(s.times.ping)
	defer ticker.Stop()
	for {
		select {
		case err := <-gone:
			return err
		case <-s.ended:
			message := websocket.FormatCloseMessage(websocket.CloseGoingAway, "the service ends")
			_ = conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(time.Second))
			return nil
		case <-ticker.C:
			if err := conn.WriteControl(websocket.PingMessage, []byte(keepAlive), time.Now().Add(s.times.write)); err != nil {
				return err
			}
		case <-sub.wake:
			if err := s.sendChanges(conn, sub); err != nil {
				return err
			}
		}
	}
}

func (s *Server) sendChanges(conn *websocket.Conn, sub *subscription) error {
	for _, c := range s.store.changes(sub) {
		config := c.config
		switch {
		case config != nil:
			config = s.patched(config, sub.node)
		case s.options.Deleted != nil:
			config = s.options.Deleted(c.id)
		}
		if len(config) == 0 {
			continue
		}
		if err := conn.SetWriteDeadline(time.Now().Add(s.times.write)); err != nil {
			return err
		}
		if err := conn.WriteMessage(websocket.TextMessage, config); err != nil {
			return err
		}
		s.count(func(n *ServerStats) { n.Sent++ })
	}
	return nil
}
