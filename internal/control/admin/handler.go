package admin

import (
	"bufio"
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/metrics/exposition"
)

// routes registers what a server serves.
type routes struct {
	server *Server
	mux    *http.ServeMux
}

// open serves a path to everyone.
func (r routes) open(pattern string, h http.Handler) {
	r.server.patterns = append(r.server.patterns, v1.Route{Pattern: pattern, Open: true})
	r.mux.Handle(pattern, h)
}

// guard serves a path to operators, whose requests have at most so many bytes.
func (r routes) guard(pattern string, body int64, h http.HandlerFunc) {
	r.bounded(pattern, body, r.server.operators, h)
}

// stream serves a path whose answer goes on until the client ends it. Each such path has places of its own: clients that follow one thing
// take neither those of requests nor those of clients that follow something else.
func (r routes) stream(pattern string, h http.HandlerFunc) {
	r.bounded(pattern, maxBody, make(chan struct{}, maxFollowers), h)
}

func (r routes) bounded(pattern string, body int64, slots chan struct{}, h http.HandlerFunc) {
	s := r.server
	s.patterns = append(s.patterns, v1.Route{Pattern: pattern})
	h = s.audited(pattern, h)
	r.mux.Handle(pattern, s.guarded(slots, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, body)
		h(w, r)
	}))
}

func (s *Server) handler() http.Handler {
	r := routes{s, http.NewServeMux()}
	live := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	r.open("GET /livez", live)
	r.open("GET /readyz", http.HandlerFunc(s.readyz))
	r.open("GET /live", live) // as STUNner calls them
	r.open("GET /ready", http.HandlerFunc(s.readyz))
	if s.config.Metrics != nil {
		r.open("GET "+cmp.Or(s.config.MetricsPath, "/metrics"), exposition.Handler(func() []metrics.Sample {
			return append(s.config.Metrics(), metrics.Of(s.listener.stats())...)
		}))
	}
	if s.config.Status != nil {
		r.guard("GET /status", maxBody, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.config.Status()) })
	}
	s.observed(r)
	if s.config.Flows != nil {
		r.guard("GET /flows", maxBody, s.flows)
	}
	if s.config.Override != nil {
		for path, value := range map[string]string{"/drain": "drain", "/undrain": "none", "/down": "down", "/up": "up"} {
			r.guard("POST "+path, maxBody, s.override(value))
		}
	}
	s.streams(r)
	s.configRoutes(r)
	for _, route := range s.config.Routes {
		r.guard(route.Pattern, max(route.MaxBody, maxBody), func(w http.ResponseWriter, r *http.Request) {
			answer, err := route.Answer(r)
			if err != nil {
				writeError(w, http.StatusBadRequest, err)
				return
			}
			writeJSON(w, http.StatusOK, answer)
		})
	}
	if s.config.Page != nil {
		r.guard("GET /", maxBody, s.config.Page.ServeHTTP)
	}
	if s.config.API != nil {
		r.guard("GET /openapi.json", maxBody, s.openAPI)
	}
	r.guard("GET /routes", maxBody, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.patterns) })
	return trackAnswering(s.named(http.NewCrossOriginProtection().Handler(r.mux)))
}

// named sets the headers of all answers, and refuses a Host that does not name this machine, so that a web page cannot reach
// it by DNS rebinding.
func (s *Server) named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Frame-Options", "DENY")
		w.Header().Set(v1.PartHeader, s.config.Part)
		if !HostAllowed(r.Host, s.config.Hosts...) {
			writeError(w, http.StatusForbidden, fmt.Errorf("host %q: use localhost or an address, or start with --admin-host and this name", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guarded accepts a request that comes over the Unix socket or carries the token, while there is a free slot.
func (s *Server) guarded(slots chan struct{}, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.unix != "":
		case s.config.Token == "":
			writeError(w, http.StatusForbidden, errors.New("over TCP this needs a credential, and there is none: use the Unix socket, or start with --admin-token-file"))
			return
		case !s.authorized(r):
			w.Header().Add("WWW-Authenticate", "Bearer")
			w.Header().Add("WWW-Authenticate", `Basic realm="weir: any user, the token as password", charset="UTF-8"`)
			writeError(w, http.StatusUnauthorized, errors.New("missing or wrong token"))
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			writeError(w, http.StatusServiceUnavailable, fmt.Errorf("%d requests are being answered already; end one of them", cap(slots)))
			return
		}
		next(w, r)
	})
}

// authorized checks the token: as a bearer token, or as the password that a browser asks its user for.
func (s *Server) authorized(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, given, ok = r.BasicAuth()
	}
	return ok && subtle.ConstantTimeCompare([]byte(given), []byte(s.config.Token)) == 1
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if s.config.Ready != nil {
		if err := s.config.Ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	io.WriteString(w, "ready\n")
}

func (s *Server) override(value string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		service, backend := r.FormValue("service"), r.FormValue("backend")
		if service == "" {
			writeError(w, http.StatusBadRequest, errors.New("no service; add ?service=NAME"))
			return
		}
		err := s.config.Override(s.operatorOf(r), service, backend, value)
		switch {
		case errors.Is(err, ErrUnknownTarget):
			writeError(w, http.StatusNotFound, err)
		case err != nil:
			writeError(w, http.StatusConflict, err)
		default:
			writeJSON(w, http.StatusOK, v1.OverrideAnswer{Service: service, Backend: backend, Override: value})
		}
	}
}

func (s *Server) console(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), v1.ConsoleProtocol) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		ctx, cancel := context.WithTimeout(r.Context(), writeTimeout)
		defer cancel()
		if err := s.config.Console(ctx, r.Body, w); err != nil {
			fmt.Fprintf(w, "error: %v\n", err)
		}
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		writeError(w, http.StatusInternalServerError, fmt.Errorf("console: %w", err))
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Time{})
	ctx, cancel := context.WithCancel(s.stopping)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", v1.ConsoleProtocol, v1.PartHeader, s.config.Part)
	if err := s.config.Console(ctx, bufio.NewReader(buffered), conn); err != nil && ctx.Err() == nil {
		fmt.Fprintf(conn, "error: %v\n", err)
	}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		writeError(w, http.StatusInternalServerError, fmt.Errorf("encode: %w", err))
		return
	}
	header(w, status)
	w.Write(append(text, '\n'))
}

// header begins an answer in JSON.
func header(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

func writeError(w http.ResponseWriter, status int, err error) {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		status = http.StatusRequestEntityTooLarge
	}
	writeJSON(w, status, v1.Refusal{Error: err.Error()})
}
