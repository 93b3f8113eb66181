package coap

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap/coaptest"
	"github.com/weir-lb/weir/internal/terminal/terminaltest"
)

// Progress and result break between words on a narrow terminal.
func TestBenchFitsTheTerminal(t *testing.T) {
	clitest.TakesSeconds(t)
	s := coaptest.Start(t, 1, "--listen", "127.0.0.1:0", "--dtls", "")
	sentences := []*regexp.Regexp{
		regexp.MustCompile(`\d+ requests \(\d+ reqs/s, \d+ retransmissions \([^ ]*\), 0 transmission errors \(0\.00%\), 2 clients\)`),
		regexp.MustCompile(`0 lost, 0 refused by the server, 0 lost sessions, \d handshakes, 0 re-handshakes, 0 failed handshakes, 0 changes of address`),
	}
	for _, width := range []int{40, 53, 80, 160} {
		t.Run(strconv.Itoa(width), func(t *testing.T) {
			t.Parallel()
			screen := terminaltest.Start(t, width, 60, os.Args[0], "coap", "bench", s.Uris[0]+"/benchmark", "--clients", "2", "--duration", "1s")
			code, text := screen.Ended()
			for _, want := range sentences {
				if words := strings.Join(strings.Fields(text), " "); code != 0 || !want.MatchString(words) {
					t.Errorf("exit code %d, without %s:\n%s", code, want, text)
				}
			}
		})
	}
}
