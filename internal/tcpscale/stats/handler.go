package stats

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/weir-lb/weir/internal/metrics/exposition"
	"github.com/weir-lb/weir/internal/tcpscale"
)

// Handler serves the paths that doc.go shows.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/reports", func(w http.ResponseWriter, r *http.Request) {
		s.servePost(w, r, false, func(body []byte, _ time.Time) (*tcpscale.Report, error) { return decodeReport(body) })
	})
	for _, path := range []string{"/api/ServerStatistics", "/api/serverstatistics"} { // the original's paths have no case
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.servePost(w, r, true, decodeOriginal) })
	}
	mux.HandleFunc("GET /api/state", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.State(s.config.Now())) })
	mux.HandleFunc("GET /api/history", s.serveHistory)
	mux.HandleFunc("GET /api/events", s.serveEvents)
	mux.Handle("GET /metrics", exposition.Handler(s.metrics))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	if s.config.Page != nil {
		mux.Handle("GET /", s.config.Page)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if s.config.HostAllowed != nil && !s.config.HostAllowed(r.Host) {
			refuse(w, http.StatusForbidden, "this service is of this machine alone: call it localhost or by an address")
			return
		}
		switch given := r.URL.Query().Get("token"); {
		case s.public(r) || s.knows(r):
			mux.ServeHTTP(w, r)
		case r.Method == http.MethodGet && r.URL.Path == "/" && s.right(given):
			// SameSite: no other site's page sends it along. The address without the token is what a browser shows and keeps.
			http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: given, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
			http.Redirect(w, r, "/", http.StatusSeeOther)
		default:
			s.drop(func(d *Dropped) { d.Strangers++ })
			w.Header().Set("WWW-Authenticate", `Basic realm="weir tcp stats", charset="UTF-8"`)
			refuse(w, http.StatusUnauthorized, "the token is wanted, of --token-file or as printed at the start: as Bearer, as the password of any user, or once as /?token=TOKEN")
		}
	})
}

// public says whether a request needs no token.
func (s *Service) public(r *http.Request) bool {
	return r.URL.Path == "/livez" || s.config.OpenReports && (r.Method == http.MethodPost || r.URL.Path == "/metrics")
}

// cookieName has the port: a browser sends the cookies of a host to all of its ports.
func cookieName(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host) // none with the scheme's own
	return "weir-tcp-stats-" + port
}

// knows looks for the token where programs and browsers put it.
func (s *Service) knows(r *http.Request) bool {
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		_, given, _ = r.BasicAuth() // RFC 7617; without it the empty token, which is wrong
	}
	if s.right(given) {
		return true
	}
	cookie, err := r.Cookie(cookieName(r))
	return err == nil && s.right(cookie.Value)
}

// right compares a token in constant time.
func (s *Service) right(given string) bool {
	want, got := sha256.Sum256([]byte(s.config.Token)), sha256.Sum256([]byte(given))
	return s.config.Token == "" || subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// maxBodies bounds what all reports that are being read take together.
const maxBodies = 64 << 20

var errBusy = errors.New("too many reports at once: report again in a second")

// readBody reads at most maxBody bytes. A slow sender holds only what it has sent.
func (s *Service) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	const step = 16 << 10
	var body []byte
	taken := int64(0)
	defer func() { s.bodies.Add(-taken) }()
	from := http.MaxBytesReader(w, r.Body, maxBody)
	for {
		if len(body) == cap(body) {
			more := int64(max(step, len(body))) // doubles
			taken += more
			if s.bodies.Add(more) > maxBodies {
				return nil, errBusy
			}
			body = append(make([]byte, 0, int64(len(body))+more), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

// servePost reads a report. Only JSON is taken: a form of a foreign web page cannot send that.
func (s *Service) servePost(w http.ResponseWriter, r *http.Request, original bool, decode func([]byte, time.Time) (*tcpscale.Report, error)) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		s.drop(func(d *Dropped) { d.BadReports++ })
		refuse(w, http.StatusUnsupportedMediaType, "want Content-Type: application/json")
		return
	}
	body, err := s.readBody(w, r)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		s.drop(func(d *Dropped) { d.TooLarge++ })
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a report has at most %d bytes", maxBody))
		return
	}
	if err == nil {
		select {
		case s.decoding <- struct{}{}:
			defer func() { <-s.decoding }()
		case <-time.After(2 * time.Second):
			err = errBusy
		}
	}
	switch {
	case errors.Is(err, errBusy):
		s.drop(func(d *Dropped) { d.Busy++ })
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	case err != nil:
		return // who sent it has gone
	}
	now := s.config.Now()
	report, err := decode(body, now)
	if err != nil {
		s.drop(func(d *Dropped) { d.BadReports++ })
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address where there is none
	key, err := s.take(now, from.Addr(), report, original)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	answer(w, map[string]string{"key": key})
}

func (s *Service) serveHistory(w http.ResponseWriter, r *http.Request) {
	id, span := r.URL.Query().Get("id"), 5*time.Minute
	if id == "" {
		id = All
	}
	if text := r.URL.Query().Get("span"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < time.Second || d > coarsePoints*coarseStep {
			refuse(w, http.StatusBadRequest, "span: want a duration from 1s to 24h")
			return
		}
		span = d
	}
	h, found := s.History(id, span)
	if !found {
		refuse(w, http.StatusNotFound, "no reporter of this id: GET /api/state lists their keys")
		return
	}
	answer(w, h)
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(value) // an error is the reader's: it has gone
}

func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}

const maxConnections = 2048

// Serve answers on listener, and ticks, until ctx ends; then it closes the listener.
func (s *Service) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: s.Handler(), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	ticking := make(chan struct{})
	go func() {
		defer close(ticking)
		_ = s.Run(ctx) // has no error
	}()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(netutil.LimitListener(listener, maxConnections)) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("statistics on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
		grace, stop := context.WithTimeout(context.Background(), time.Second)
		if server.Shutdown(grace) != nil {
			server.Close()
		}
		stop()
		<-failed
	}
	cancel()
	<-ticking
	return err
}
