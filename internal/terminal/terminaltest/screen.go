// Package terminaltest runs a program in a terminal emulator (tmux) and reads what a person would see there.
package terminaltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Screen is a terminal with a program in it.
type Screen struct {
	t      testing.TB
	socket string
}

const (
	limit = 2 * time.Minute
	poll  = 20 * time.Millisecond
)

// endTitle, with the exit code behind it, is the title of a terminal whose program has ended.
const endTitle = "the program ended with "

// settings: what the program leaves stays readable.
const settings = `set -g status off
set -g history-limit 10000
`

// Start runs a command in a new terminal until it or the test ends. A test that may not install tmux is skipped.
func Start(t testing.TB, width, height int, command ...string) *Screen {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("WEIR_ROOT") == "1" {
			t.Fatal(err)
		}
		t.Skip("no tmux here")
	}
	dir, err := os.MkdirTemp("", "wt") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	s := &Screen{t: t, socket: filepath.Join(dir, "tmux")}
	file := filepath.Join(dir, "conf")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", s.socket, "kill-server").Run() //nolint:gosec // our own socket
		os.RemoveAll(dir)
	})
	// A shell writes the exit code as the terminal's title, behind all that the program printed, and stays: when a program ends,
	// tmux 3.3 may close its terminal before it has read the last lines, or never learn how it ended. Ctrl-C is for the program
	// alone.
	shell := []string{"sh", "-c", `trap : INT; "$@"; printf '\033]2;%s%d\033\\' "$0" $?; exec sleep infinity`, endTitle}
	s.tmux(append(append([]string{"-u", "-f", file, "new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "--"}, shell...), command...)...)
	return s
}

func (s *Screen) tmux(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...) //nolint:gosec // the test's own words
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Resize gives the terminal another size, as a person who drags its window does.
func (s *Screen) Resize(width, height int) {
	s.t.Helper()
	s.tmux("resize-window", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height))
}

// Type presses keys, by tmux's names: "C-c" or "Enter" for instance.
func (s *Screen) Type(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

// Text is everything that can be seen, lines that were scrolled off included, without blanks at the end of lines.
func (s *Screen) Text() string {
	s.t.Helper()
	return strings.TrimRight(s.tmux("capture-pane", "-p", "-S", "-"), "\n")
}

// Lines is what the program printed: Text, in which lines that the terminal broke are whole.
func (s *Screen) Lines() []string {
	s.t.Helper()
	return strings.Split(s.tmux("capture-pane", "-p", "-J", "-S", "-"), "\n")
}

// Visible is what can be seen without scrolling back.
func (s *Screen) Visible() string {
	s.t.Helper()
	return strings.TrimRight(s.tmux("capture-pane", "-p"), "\n")
}

// Wait waits until what can be seen is as wanted, and returns it.
func (s *Screen) Wait(what string, wanted func(text string) bool) string {
	s.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(poll) {
		text := s.Text()
		if wanted(text) {
			return text
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain for %s; the terminal shows:\n%s", what, text)
		}
	}
}

// Ended waits for the end of the program and returns its exit code and what it left on the screen.
func (s *Screen) Ended() (code int, text string) {
	s.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(poll) {
		if title, ended := strings.CutPrefix(strings.TrimSpace(s.tmux("display-message", "-p", "#{pane_title}")), endTitle); ended {
			code, err := strconv.Atoi(title)
			if err != nil {
				s.t.Fatal(err)
			}
			return code, s.Text()
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the program does not end; the terminal shows:\n%s", s.Text())
		}
	}
}
