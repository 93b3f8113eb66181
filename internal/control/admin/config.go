package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/api/v1"
)

// Configuration is what the paths at /config do. by is who asks.
type Configuration struct {
	Get    func(path string) (*v1.Configuration, error)
	Change func(by string, request v1.ConfigRequest) (*v1.ConfigAnswer, error)
	Diff   func() (*v1.ConfigDiff, error)
	Save   func(by, match string) (*v1.ConfigAnswer, error)
	Revert func(by, match string) (*v1.ConfigAnswer, error)
	Watch  func(ctx context.Context, since uint64, write func(line any, flush bool) error) error
}

// Errors that Configuration's functions wrap, and the status that they become; a RefusedError says more, any other is 400.
var (
	ErrRefused  = errors.New("refused")        // 409
	ErrConflict = errors.New("other etag")     // 412
	ErrAbsent   = errors.New("no such object") // 404
)

// RefusedError is an error with the body of its answer.
type RefusedError struct {
	Err     error // wraps one of the above
	Refusal v1.Refusal
}

func (e *RefusedError) Error() string { return e.Refusal.Error }

func (e *RefusedError) Unwrap() error { return e.Err }

// maxConfigBody bounds a configuration or a batch of changes, as a file in JSON is bounded.
const maxConfigBody = 8 << 20

func (s *Server) configRoutes(r routes) {
	c := s.config.Configuration
	if c == nil {
		return
	}
	for _, path := range []string{"/config", "/config/{path...}"} {
		r.guard("GET "+path, maxBody, func(w http.ResponseWriter, r *http.Request) {
			found, err := c.Get(configPath(r))
			if err == nil {
				w.Header().Set("ETag", `"`+found.ETag+`"`)
			}
			answer(w, found, err)
		})
		for method, op := range map[string]string{"PUT": "set", "PATCH": "merge", "DELETE": "remove"} {
			r.guard(method+" "+path, maxConfigBody, func(w http.ResponseWriter, r *http.Request) {
				change := v1.ConfigChange{Op: op, Path: configPath(r)}
				if op == "set" && r.Header.Get("If-None-Match") == "*" {
					change.Op = "add"
				}
				body, err := io.ReadAll(r.Body)
				if change.Value = body; err == nil && len(body) > 0 && !json.Valid(body) {
					err = errors.New("the body is not JSON")
				}
				s.change(w, r, v1.ConfigRequest{Changes: []v1.ConfigChange{change}}, err)
			})
		}
	}
	r.guard("POST /config", maxConfigBody, func(w http.ResponseWriter, r *http.Request) {
		var request v1.ConfigRequest
		decoder := json.NewDecoder(r.Body)
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&request)
		s.change(w, r, request, err)
	})
	r.guard("GET /config-diff", maxBody, func(w http.ResponseWriter, _ *http.Request) {
		found, err := c.Diff()
		answer(w, found, err)
	})
	for path, do := range map[string]func(by, match string) (*v1.ConfigAnswer, error){"/config-save": c.Save, "/config-revert": c.Revert} {
		r.guard("POST "+path, maxBody, func(w http.ResponseWriter, r *http.Request) {
			done, err := do(s.operatorOf(r), cmp.Or(r.Header.Get("If-Match"), r.URL.Query().Get("if")))
			answered(w, done, err)
		})
	}
	r.stream("POST /config-watch", s.watchConfig)
}

// change makes changes and answers.
func (s *Server) change(w http.ResponseWriter, r *http.Request, request v1.ConfigRequest, err error) {
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("read the request: %w", err))
		return
	}
	query := r.URL.Query()
	for name, set := range map[string]*bool{"dry_run": &request.DryRun, "write": &request.Write} {
		if text := query.Get(name); text != "" {
			if *set, err = strconv.ParseBool(text); err != nil {
				writeError(w, http.StatusBadRequest, fmt.Errorf("%s=%s: write true or false", name, text))
				return
			}
		}
	}
	request.If = cmp.Or(r.Header.Get("If-Match"), request.If)
	done, err := s.config.Configuration.Change(s.operatorOf(r), request)
	answered(w, done, err)
}

// answered answers a change.
func answered(w http.ResponseWriter, done *v1.ConfigAnswer, err error) {
	if err == nil {
		w.Header().Set("ETag", `"`+done.ETag+`"`)
	}
	answer(w, done, err)
}

func answer(w http.ResponseWriter, value any, err error) {
	if err == nil {
		writeJSON(w, http.StatusOK, value)
		return
	}
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, ErrConflict):
		status = http.StatusPreconditionFailed
	case errors.Is(err, ErrAbsent):
		status = http.StatusNotFound
	case errors.Is(err, ErrRefused):
		status = http.StatusConflict
	}
	refusal := v1.Refusal{Error: err.Error()}
	if more := (*RefusedError)(nil); errors.As(err, &more) {
		refusal = more.Refusal
	}
	if refusal.ETag != "" {
		w.Header().Set("ETag", `"`+refusal.ETag+`"`)
	}
	writeJSON(w, status, refusal)
}

// configPath returns the path of the object, escaped as it came.
func configPath(r *http.Request) string {
	return cmp.Or(strings.TrimPrefix(r.URL.EscapedPath(), "/config"), "/")
}

// watchConfig streams configurations as they come into force.
func (s *Server) watchConfig(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseUint(cmp.Or(r.URL.Query().Get("since"), "0"), 10, 64)
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("since=%s: write the generation after which the stream begins", r.URL.Query().Get("since")))
		return
	}
	s.stream(w, r, func(ctx context.Context, write func(line any, flush bool) error) error {
		return s.config.Configuration.Watch(ctx, since, write)
	})
}
