package admin

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	"golang.org/x/sys/unix"
)

// unaudited are requests with POST that change nothing: they follow something.
var unaudited = map[string]bool{"POST /trace": true, "POST /applied": true, "POST /owners": true, "POST /config-watch": true}

// audited logs who has requested a change, which one, and how it ended.
func (s *Server) audited(pattern string, next http.HandlerFunc) http.HandlerFunc {
	if strings.HasPrefix(pattern, "GET ") || unaudited[pattern] {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		action := pattern
		if strings.Contains(pattern, "{") {
			action = r.Method + " " + r.URL.Path
		}
		answered := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next(answered, r)
		s.config.Log.Info("operator action", "action", action, "query", r.URL.RawQuery, "by", s.operatorOf(r), "status", answered.status)
	}
}

// operatorOf is who sent a request: over the Unix socket a user and a process, which the kernel vouches for, else an address that has the token.
func (s *Server) operatorOf(r *http.Request) string {
	p, ok := r.Context().Value(trackedConnKey{}).(*trackedConn)
	if !ok || s.unix == "" {
		return r.RemoteAddr
	}
	who := "unix socket"
	conn, ok := p.Conn.(*net.UnixConn)
	if !ok {
		return who
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return who
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			who = fmt.Sprintf("uid %d, pid %d", peer.Uid, peer.Pid)
		}
	}) // a closed connection leaves who as it is
	return who
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the status.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
