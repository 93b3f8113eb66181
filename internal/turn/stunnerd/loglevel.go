package stunnerd

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/turn/gateway"
)

// Levels of STUNner that slog does not define.
const (
	LevelTrace = slog.LevelDebug - 4
	LevelOff   = slog.LevelError + 4 // DISABLE: nothing is logged
)

// LogLevels is a log level for each scope.
type LogLevels struct {
	All    slog.Level            // of the scopes that are not in Scopes
	Scopes map[string]slog.Level // turn, listener-NAME and so on
}

// Of returns the level of a scope.
func (l *LogLevels) Of(scope string) slog.Level {
	if level, ok := l.Scopes[scope]; ok {
		return level
	}
	return l.All
}

// logScopes returns STUNner's scopes under which the gateway logs, without listener-NAME of each listener.
func logScopes() []string {
	return []string{"health", "metrics", "offload", "reconciler", "resolver", "stunnerd", "turn"}
}

// logLevel reads SCOPE:LEVEL,... as STUNner does: a later all overrides the entries before it, and an entry of
// another form has no effect; here that adds a note. It runs after the listeners are known.
func (c *converter) logLevel(f *Config) error {
	text := c.expand(f.Admin.LogLevel)
	if text == "" {
		return nil
	}
	levels := map[string]slog.Level{
		"DISABLE": LevelOff, "ERROR": slog.LevelError, "WARN": slog.LevelWarn, "INFO": slog.LevelInfo, "DEBUG": slog.LevelDebug, "TRACE": LevelTrace,
	}
	known := logScopes()
	for i := range c.result.Gateway.Listeners {
		known = append(known, "listener-"+c.result.Gateway.Listeners[i].Name)
	}
	l := &c.result.Log
	for _, part := range strings.Split(text, ",") {
		scope, name, found := strings.Cut(strings.TrimSpace(part), ":")
		level, ok := levels[strings.ToUpper(name)]
		switch {
		case !found || !ok:
			c.note("admin.loglevel", "%q has no effect: it is no SCOPE:LEVEL; write for example all:INFO or turn:DEBUG, with DISABLE, ERROR, WARN, INFO, DEBUG or TRACE", part)
		case strings.EqualFold(scope, "all"):
			l.All, l.Scopes = level, nil
		case !slices.Contains(known, scope):
			c.note("admin.loglevel", "%q has no effect: nothing is logged under the scope %q here; there are all, %s", part, scope, strings.Join(known, ", "))
		default:
			if l.Scopes == nil {
				l.Scopes = map[string]slog.Level{}
			}
			l.Scopes[scope] = level
		}
	}
	return nil
}

// ParseLogLevel reads the levels of stunnerd's option -l for a gateway with that configuration. An entry without effect is a note.
func ParseLogLevel(text string, of *gateway.Config) (LogLevels, []error) {
	c := &converter{getenv: func(string) string { return "" }}
	c.result.Gateway = *of
	c.result.Log.All = slog.LevelInfo
	_ = c.logLevel(&Config{Admin: Admin{LogLevel: Text(text)}}) // it returns notes, not errors
	return c.result.Log, c.result.Notes
}
