package cli

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/weir-lb/weir/internal/events"
)

// NewLogger returns the logger of a command's --log flag: "text" for people, "json" for machines.
func NewLogger(w io.Writer, format string) (*slog.Logger, error) {
	return NewLoggerAt(w, format, slog.LevelInfo)
}

// NewLoggerAt is NewLogger with a level, which may change while the command runs. The newest records are kept for the admin API; for
// machines each one has its name.
func NewLoggerAt(w io.Writer, format string, level slog.Leveler) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	var written slog.Handler
	switch format {
	case "text", "":
		written = slog.NewTextHandler(w, options)
	case "json":
		written = events.Named(slog.NewJSONHandler(w, options))
	default:
		return nil, fmt.Errorf("--log: no format %q; write text or json", format)
	}
	kept, _ := events.Keep(written)
	return slog.New(kept), nil
}
