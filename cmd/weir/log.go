package main

import (
	"fmt"
	"io"
	"log/slog"
)

// newLogger returns the logger of a command's --log flag: "text" for people, "json" for machines.
func newLogger(w io.Writer, format string) (*slog.Logger, error) {
	switch format {
	case "text", "":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	}
	return nil, fmt.Errorf("--log: no format %q; write text or json", format)
}
