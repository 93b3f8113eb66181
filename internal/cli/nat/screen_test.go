package nat

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/terminal/terminaltest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// widths of a terminal: first one after the other, then while the command runs.
var widths = []int{40, 80, 100, 160}

// lastLine is what stands lowest, if no other visible line holds mark.
func lastLine(text, mark string) string {
	lines := strings.Split(text, "\n")
	last := lines[len(lines)-1]
	if strings.Count(text, mark) > 1 {
		return ""
	}
	return last
}

// The rates are part of the prompt and redrawn each second: never more than one line, whatever the width does.
func TestNATPromptFitsTheTerminal(t *testing.T) {
	clitest.TakesSeconds(t)
	prompts := map[int]string{
		40:  "weir nat>",
		80:  "[0 entries, 0/s to, 0/s from destinations] weir nat>",
		100: "[0 entries, 0/s to, 0/s from destinations] weir nat>",
		160: "[0 entries, 0/s to, 0/s from destinations] weir nat>",
		60:  "[0 entries, 0/s to, 0/s fr…] weir nat>",
	}
	const mark = "weir nat>"
	prompt := func(s *terminaltest.Screen, width int) {
		t.Helper()
		want := prompts[width]
		s.Wait(want, func(string) bool { return lastLine(s.Visible(), mark) == want })
	}
	for _, width := range widths {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			s := terminaltest.Start(t, width, 24, os.Args[0], "nat", netlabtest.UDPAddress(t).String(), clitest.UDPEcho(t), "--admin=")
			prompt(s, width)
			if width != 100 {
				return
			}
			for _, width := range []int{60, 80, 40, 160, 60, 40, 80} {
				s.Resize(width, 24)
				prompt(s, width)
			}
			s.Type("i", "n", "f")
			s.Wait("the command", func(string) bool { return lastLine(s.Visible(), mark) == prompts[80]+" inf" })
			s.Type("C-c")
			if code, text := s.Ended(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, text)
			}
		})
	}
}

// Without a prompt the rates stand in a line of their own.
func TestNATRatesFitTheTerminal(t *testing.T) {
	clitest.TakesSeconds(t)
	const rates = "0 entries, 0/s to, 0/s from destinations"
	command := fmt.Sprintf("exec %s nat %s %s --admin= </dev/null", os.Args[0], netlabtest.UDPAddress(t), clitest.UDPEcho(t))
	s := terminaltest.Start(t, 80, 24, "sh", "-c", command)
	for _, width := range []int{80, 30, 39, 40, 100, 160, 20} {
		s.Resize(width, 24)
		want := rates
		if width < len(rates) {
			want = rates[:width-1] + "…"
		}
		s.Wait(want, func(string) bool { return lastLine(s.Visible(), "0/s to") == want })
	}
	s.Type("C-c")
	if code, text := s.Ended(); code != 0 || strings.Contains(text, "from dest") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}
