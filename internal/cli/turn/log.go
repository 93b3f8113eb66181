package turn

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/events"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// scopedHandler logs each scope from a level of its own, as admin.loglevel of STUNner's files requires. A logger names its
// scope with an attribute, Log.With("scope", "resolver"), which is not printed; a record with an attribute "listener" belongs to
// the scope listener-NAME if that scope has a level.
type scopedHandler struct {
	slog.Handler // accepts every level
	levels       *atomic.Pointer[stunnerd.LogLevels]
	scope        string
}

// newScopedLogger returns a logger whose levels may change while the command runs; the initial level is INFO.
func newScopedLogger(w io.Writer, format string) (*slog.Logger, *atomic.Pointer[stunnerd.LogLevels], error) {
	log, err := cli.NewLoggerAt(w, format, stunnerd.LevelTrace)
	if err != nil {
		return nil, nil, err
	}
	levels := new(atomic.Pointer[stunnerd.LogLevels])
	levels.Store(&stunnerd.LogLevels{All: slog.LevelInfo})
	return slog.New(&scopedHandler{log.Handler(), levels, "stunnerd"}), levels, nil
}

// Ring returns where the records are kept.
func (h *scopedHandler) Ring() *events.Ring { return events.RingOf(slog.New(h.Handler)) }

// Enabled reports whether a record of the level may be logged; the level of its listener may allow it.
func (h *scopedHandler) Enabled(_ context.Context, level slog.Level) bool {
	levels := h.levels.Load()
	if level >= levels.Of(h.scope) {
		return true
	}
	for scope, from := range levels.Scopes {
		if level >= from && strings.HasPrefix(scope, "listener-") {
			return true
		}
	}
	return false
}

// Handle logs a record if the level of its scope allows it.
func (h *scopedHandler) Handle(ctx context.Context, record slog.Record) error {
	levels := h.levels.Load()
	from := levels.Of(h.scope)
	record.Attrs(func(a slog.Attr) bool {
		if a.Key != "listener" {
			return true
		}
		if level, ok := levels.Scopes["listener-"+a.Value.String()]; ok {
			from = level
		}
		return false
	})
	if record.Level < from {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs removes the scope from the attributes and applies it.
func (h *scopedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	to := &scopedHandler{h.Handler, h.levels, h.scope}
	var printed []slog.Attr
	for _, a := range attrs {
		if a.Key == "scope" {
			to.scope = a.Value.String()
		} else {
			printed = append(printed, a)
		}
	}
	if len(printed) > 0 {
		to.Handler = h.Handler.WithAttrs(printed)
	}
	return to
}

// WithGroup keeps the scope.
func (h *scopedHandler) WithGroup(name string) slog.Handler {
	return &scopedHandler{h.Handler.WithGroup(name), h.levels, h.scope}
}
