package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// ErrBusy is wrapped by errors of Config.Trace when another client has the trace; it becomes status 409.
var ErrBusy = errors.New("busy")

// streams are the paths whose answers go on until the client disconnects.
func (s *Server) streams(r routes) {
	if s.config.Trace != nil {
		r.stream("POST /trace", s.trace)
	}
	if s.config.Applied != nil {
		r.stream("POST /applied", s.applied)
	}
	if s.config.Owners != nil {
		r.stream("POST /owners", s.owners)
	}
	if s.config.Console != nil {
		r.stream("POST /console", s.console)
	}
}

// trace streams what Config.Trace writes.
func (s *Server) trace(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	s.stream(w, r, func(ctx context.Context, write func(line any, flush bool) error) error {
		return s.config.Trace(ctx, r.Form, write)
	})
}

// applied streams what Config.Applied writes.
func (s *Server) applied(w http.ResponseWriter, r *http.Request) { s.stream(w, r, s.config.Applied) }

// owners streams what Config.Owners writes.
func (s *Server) owners(w http.ResponseWriter, r *http.Request) { s.stream(w, r, s.config.Owners) }

// stream sends what lines writes, one JSON value on a line. An error before the first line is an answer.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, lines func(context.Context, func(line any, flush bool) error) error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // the server's ends ctx
	begun := false
	err := lines(ctx, func(line any, flush bool) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
		}
		control.SetWriteDeadline(time.Now().Add(writeTimeout))
		text, err := json.Marshal(line)
		if err == nil {
			_, err = w.Write(append(text, '\n'))
		}
		if err == nil && flush {
			err = control.Flush()
		}
		return err
	})
	switch {
	case begun || err == nil:
	case errors.Is(err, ErrBusy):
		writeError(w, http.StatusConflict, err)
	default:
		writeError(w, http.StatusBadRequest, err)
	}
}
