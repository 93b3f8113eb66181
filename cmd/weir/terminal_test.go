package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/terminal/terminaltest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestWatchFitsTheTerminal(t *testing.T) {
	p := clitest.Start(t, "nat", "nat", netlabtest.UDPAddress(t).String(), clitest.UDPEcho(t))
	s := terminaltest.Start(t, 100, 24, os.Args[0], "lb", "show", "--watch", "--every", "100ms", "--admin", "unix:"+p.Socket)
	for _, width := range []int{100, 40, 30, 80, 160} {
		s.Resize(width, 24)
		text := s.Wait("a table", func(string) bool { return strings.Count(s.Visible(), "snapshot ") == 1 })
		for _, line := range strings.Split(text, "\n") {
			if len([]rune(line)) > width {
				t.Errorf("%d columns hold %q", width, line)
			}
		}
	}
	s.Type("C-c")
	if code, text := s.Ended(); code != 0 || strings.Count(s.Visible(), "snapshot ") != 1 {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}

// Tables that are wider than the terminal are made to fit: no line is left to the terminal to break.
func TestTablesFitTheTerminal(t *testing.T) {
	for _, command := range []string{"snat rules", "bench list"} {
		for _, width := range []int{40, 80} {
			t.Run(fmt.Sprint(command, " ", width), func(t *testing.T) {
				s := terminaltest.Start(t, width, 24, append([]string{os.Args[0]}, strings.Fields(command)...)...)
				code, text := s.Ended()
				if code != 0 {
					t.Fatalf("exit code %d:\n%s", code, text)
				}
				for _, line := range s.Lines() {
					if len([]rune(strings.TrimRight(line, " "))) > width {
						t.Errorf("broken by the terminal: %s", line)
					}
				}
			})
		}
	}
}

// Help fits the terminal, its examples excepted: a line that the shell takes must be one line.
func TestHelpFitsTheTerminal(t *testing.T) {
	for _, command := range []string{"", "tcp bench", "coap bench", "snat simulate", "lb run", "check"} {
		for _, width := range []int{40, 80} {
			t.Run(fmt.Sprint(command, " ", width), func(t *testing.T) {
				t.Parallel()
				s := terminaltest.Start(t, width, 24, append(append([]string{os.Args[0]}, strings.Fields(command)...), "--help")...)
				code, text := s.Ended()
				if code != 0 || !strings.Contains(text, "Usage:") {
					t.Fatalf("exit code %d:\n%s", code, text)
				}
				examples, flags := false, false
				for _, line := range s.Lines() {
					line = strings.TrimRight(line, " ")
					examples = line == "Examples:" || examples && line != ""
					if !examples && len([]rune(line)) > width {
						t.Errorf("broken by the terminal: %s", line)
					}
					if flags && width == 80 && line != "" && !strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "Use ") {
						t.Errorf("not below its flag: %s", line)
					}
					flags = flags && line != "" || line == "Flags:"
				}
			})
		}
	}
}
