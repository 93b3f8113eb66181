package coap

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/terminal/terminaltest"
)

// The browser in a terminal of 40, 80 and 160 columns, and in one that changes its size: discovery, a request, an observation, a
// change, a deletion, the filter, the help, and what is left of it in the end.
func TestBrowse(t *testing.T) {
	clitest.TakesSeconds(t)
	s := coaptest.Start(t, 2, "--plugtest", "--notify-interval", "300ms", "--listen", "127.0.0.1:0", "--dtls", "127.0.0.1:0")
	for i, width := range []int{40, 80, 160} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			screen := terminaltest.Start(t, width, 24, os.Args[0], "coap", "browse", s.Uris[i%2])
			has := func(texts ...string) {
				t.Helper()
				screen.Wait(fmt.Sprintf("%q", texts), func(text string) bool {
					for _, want := range texts {
						if !strings.Contains(text, want) {
							return false
						}
					}
					for line := range strings.Lines(text) {
						if len([]rune(strings.TrimSuffix(line, "\n"))) > width {
							t.Fatalf("a line of more than %d columns: %s", width, line)
						}
					}
					return true
				})
			}
			choose := func(filter string) {
				t.Helper()
				screen.Type("/")
				has("filter:")
				screen.Type(filter)
				has("filter: "+filter, "> "+filter)
				screen.Type("Enter")
			}
			has(" resources", "> /")
			choose("/large-up")
			screen.Type("Enter")
			has("2.05 CONTENT", "GET /large-update 2.05")
			screen.Type("e")
			has("Ctrl-S put")
			screen.Type("Escape")
			has("enter GET")
			choose("/obs-large")
			screen.Type("o")
			has("/obs-large *", "notified /obs-large 2.05")
			screen.Type("o")
			has("ended /obs-large")
			choose("/test")
			screen.Type("e")
			has("Ctrl-S put")
			screen.Type("a new text", "C-s")
			has("PUT /test 2.04")
			screen.Type("d")
			has("delete /test? y/n")
			screen.Type("y")
			has("DELETE /test 2.02")
			screen.Type("?")
			has("any key: back")
			screen.Type("x")
			has("enter GET")
			width = 100 - width/2 // 80, 60, 20 columns
			screen.Resize(width, 30)
			screen.Type("Enter")
			has("GET /test")
			screen.Type("C-c")
			if code, text := screen.Ended(); code != 0 || strings.Contains(text, "enter GET") {
				t.Errorf("code %d, the terminal shows\n%s", code, text)
			}
		})
	}
}

// The resources of another server.
func TestBrowseOfLibcoap(t *testing.T) {
	clitest.TakesSeconds(t)
	plain, _ := startLibcoapExample(t)
	screen := terminaltest.Start(t, 80, 24, os.Args[0], "coap", "browse", plain)
	has := func(want string) {
		t.Helper()
		screen.Wait(want, func(text string) bool { return strings.Contains(text, want) })
	}
	has("/time")
	screen.Type("/")
	has("filter:")
	screen.Type("time", "Enter", "Enter")
	has("GET /time 2.05")
	screen.Type("q")
	if code, text := screen.Ended(); code != 0 {
		t.Errorf("code %d, the terminal shows\n%s", code, text)
	}
}

func TestBrowseNeedsATerminal(t *testing.T) {
	out, code := clitest.Weir(t, "coap", "browse", "coap://localhost")
	if code != 2 || !strings.Contains(out, "needs a terminal; use weir coap discover") {
		t.Errorf("%d: %s", code, out)
	}
}
