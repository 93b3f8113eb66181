package main

import (
	"fmt"
	"io"
	"log/slog"
)

// newLogger returns the logger of a command's --log flag: "text" for people, "json" for machines.
func newLogger(w io.Writer, format string) (*slog.Logger, error) {
	return newLoggerAt(w, format, slog.LevelInfo)
}

// newLoggerAt is newLogger with a level, which may change while the command runs.
func newLoggerAt(w io.Writer, format string, level slog.Leveler) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "text", "":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log: no format %q; write text or json", format)
}
