package cli

import (
	"fmt"
	"io"
	"log/slog"
)

// NewLogger returns the logger of a command's --log flag: "text" for people, "json" for machines.
func NewLogger(w io.Writer, format string) (*slog.Logger, error) {
	return NewLoggerAt(w, format, slog.LevelInfo)
}

// NewLoggerAt is NewLogger with a level, which may change while the command runs.
func NewLoggerAt(w io.Writer, format string, level slog.Leveler) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text", "":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log: no format %q; write text or json", format)
}
