package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

// What is announced is listed. Passwords are read: a file that cannot be used is an error, and a variable that is not set here a warning,
// as weir lb run may have another environment.
func TestCheckAnnounce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		clitest.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good, empty, long := write("good", "secret\n"), write("empty", "\n"), write("long", strings.Repeat("x", 81))
	for _, c := range []struct {
		bgp, neighbour string
		code           int
		want           string
	}{
		{"", "as: 64513, password_file: " + good, 0, "192.0.2.1/32"},
		{"prepends: 2, ", "as: 64513", 0, "192.0.2.1/32"},
		{"", "as: 64513, password_env: NO_SUCH_PASSWORD", 0, "announce.bgp.neighbours[0]: the password of neighbour 10.0.0.254 is empty; write it into the environment variable NO_SUCH_PASSWORD"},
		{"", "as: 64513, password_file: " + filepath.Join(dir, "none"), cli.ExitFailure, "weir.yaml:1:"},
		{"", "as: 64513, password_file: " + filepath.Join(dir, "none"), cli.ExitFailure, "announce.bgp.neighbours[0].password_file: read the password of neighbour 10.0.0.254: stat "},
		{"", "as: 64513, password_file: " + empty, cli.ExitFailure, "is empty; write it into " + empty},
		{"", "as: 64513, password_file: " + long, cli.ExitFailure, "has 81 bytes; TCP MD5 takes at most 80"},
		{"prepends: 2, ", "as: 64512", cli.ExitFailure, "announce.bgp.prepends: neighbour 10.0.0.254 is in the own AS 64512: it refuses a path with that number as a loop; remove it, and write a lower local_preference"},
	} {
		write("weir.yaml", "announce: {bgp: {as: 64512, router_id: 10.0.0.1, "+c.bgp+"neighbours: [{address: 10.0.0.254, "+c.neighbour+"}]}}\n"+
			"services: [{name: web, vips: [{address: 192.0.2.1, protocol: udp, port: 80}], backends: [{name: a, address: 10.0.0.11}]}]\n")
		out, code := clitest.Weir(t, "check", file)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s%s: exit code %d, want %d and %s\n%s", c.bgp, c.neighbour, code, c.code, c.want, out)
		}
	}
}
