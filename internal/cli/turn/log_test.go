package turn

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// Each scope is logged from its own level, a listener's lines from the listener's.
func TestScopedLog(t *testing.T) {
	var out bytes.Buffer
	log, levels, err := newScopedLogger(&out, "text")
	if err != nil {
		t.Fatal(err)
	}
	loggers := map[string]*slog.Logger{"root": log, "turn": log.With("scope", "turn"), "resolver": log.With("a", 1, "scope", "resolver").WithGroup("g")}
	logged := func(name string, level slog.Level, args ...any) string {
		out.Reset()
		loggers[name].Log(t.Context(), level, "hello", args...)
		return out.String()
	}
	expect := func(want bool, name string, level slog.Level, args ...any) {
		t.Helper()
		if got := logged(name, level, args...); (got != "") != want {
			t.Errorf("%s at %v with %v: %q", name, level, args, got)
		}
	}
	expect(true, "turn", slog.LevelInfo)
	expect(false, "turn", slog.LevelDebug)
	levels.Store(&stunnerd.LogLevels{All: slog.LevelWarn, Scopes: map[string]slog.Level{
		"turn": slog.LevelDebug, "resolver": stunnerd.LevelOff, "listener-a": slog.LevelInfo, "listener-b": stunnerd.LevelOff,
	}})
	expect(false, "root", slog.LevelInfo)
	expect(true, "root", slog.LevelWarn)
	expect(true, "turn", slog.LevelDebug)
	expect(false, "turn", stunnerd.LevelTrace)
	expect(false, "resolver", slog.LevelError)
	expect(true, "root", slog.LevelInfo, "listener", "a")
	expect(false, "root", slog.LevelDebug, "listener", "a")
	expect(false, "turn", slog.LevelError, "listener", "b")
	expect(true, "turn", slog.LevelDebug, "listener", "c")
	levels.Store(&stunnerd.LogLevels{All: stunnerd.LevelTrace})
	if got := logged("resolver", slog.LevelDebug, "b", 2); !strings.Contains(got, "level=DEBUG msg=hello a=1 g.b=2") || strings.Contains(got, "scope") {
		t.Errorf("%q", got)
	}
}

// A file that is read again and again does not log its notes again and again, and no file fills the log.
func TestNotesAreLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	l := &gatewayLoop{log: slog.New(slog.NewTextHandler(&out, nil))}
	now := time.Unix(1_000_000, 0)
	lines := func(notes ...string) int {
		out.Reset()
		l.noteLocked(notes, now)
		return strings.Count(out.String(), "note=")
	}
	for i, want := range []int{2, 0, 0} {
		if got := lines("a", "b"); got != want {
			t.Errorf("read %d: %d lines", i, got)
		}
		now = now.Add(time.Second)
	}
	if lines("a", "c") != 1 || lines("b") != 0 {
		t.Error("what was logged before is logged again, or what is new is not")
	}
	many := 0
	for i := range 10_000 {
		many += lines(fmt.Sprint("note ", i))
	}
	if many != maxNotes-3 {
		t.Errorf("%d lines", many)
	}
	if now = now.Add(noteEvery); lines("a") != 1 || len(l.noted) != 1 {
		t.Errorf("not logged after %v; %d are remembered", noteEvery, len(l.noted))
	}
}
