package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/bench/demo"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/terminal/terminaltest"
)

// demoRun is a `weir demo` whose processes can be found by the directory of their sockets.
type demoRun struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	out  bytes.Buffer // standard output
	view *clitest.LockedBuffer
}

func startDemo(t *testing.T, args ...string) *demoRun {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir, err := os.MkdirTemp("", "wd") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	d := &demoRun{t: t, dir: dir, view: new(clitest.LockedBuffer)}
	d.cmd = exec.Command(os.Args[0], append([]string{"demo", "--json"}, args...)...)
	d.cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	d.cmd.Stdout, d.cmd.Stderr = &d.out, d.view
	if err := clitest.StartChild(d.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait()
		}
		os.RemoveAll(dir)
	})
	return d
}

// processes maps the names of the demo's running processes (node1, nat) to their ids.
func (d *demoRun) processes() map[string]int {
	d.t.Helper()
	found := map[string]int{}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("unix:"+d.dir)) {
			continue // gone, or not ours
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil {
			d.t.Fatal(err)
		}
		words := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		found[strings.TrimSuffix(filepath.Base(words[len(words)-1]), ".sock")] = pid
	}
	return found
}

// underWay waits until the load runs.
func (d *demoRun) underWay() {
	d.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !strings.Contains(d.view.String(), "req/s"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("no load:\n%s", d.view)
		}
	}
}

// ends waits for the exit code and checks that nothing is left behind.
func (d *demoRun) ends() int {
	d.t.Helper()
	timer := time.AfterFunc(2*time.Minute, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	err := d.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	if left := d.processes(); len(left) > 0 {
		d.t.Errorf("processes left: %v", left)
	}
	if files, err := os.ReadDir(d.dir); err != nil || len(files) > 0 {
		d.t.Errorf("files left: %v, %v", files, err)
	}
	return d.cmd.ProcessState.ExitCode()
}

func TestDemoProvesItsClaim(t *testing.T) {
	clitest.TakesSeconds(t)
	report := filepath.Join(t.TempDir(), "demo.html")
	d := startDemo(t, "--duration", "8s", "--clients", "50", "--interval", "20ms", "--seed", "7", "--report", report)
	d.underWay()
	if running := d.processes(); len(running) != 4 {
		t.Errorf("running: %v, want three nodes and a balancer", running)
	}
	code := d.ends()
	var r demo.Result
	if err := json.Unmarshal(d.out.Bytes(), &r); err != nil {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, &d.out, d.view)
	}
	if code != 0 || !r.OK || r.Lost != 0 || r.Rehandshakes != 0 || r.Errors != 0 || r.Forwarded == 0 || r.Requests < 1000 || len(r.Events) != 6 {
		t.Errorf("exit code %d, %+v\n%s", code, r, d.view)
	}
	sessions := 0
	for _, n := range r.Sessions {
		sessions += n
	}
	if len(r.Sessions) != 3 || sessions < 50 || r.Established != 50 || r.Drained != 3 {
		t.Errorf("sessions by node: %v, want at least 50 in all; %d established, node %d drained", r.Sessions, r.Established, r.Drained)
	}
	// The clients without connection ids show that the events were real.
	p, byEvent := r.Plain, uint64(0)
	for _, e := range r.Events {
		byEvent += e.LostPlain
	}
	if p.Clients != 12 || p.Lost < 12 || p.Established < 12 || p.Requests == 0 || byEvent != p.Lost {
		t.Errorf("without connection ids: %+v, by event %d", p, byEvent)
	}
	if page, err := os.ReadFile(report); err != nil || !bytes.Contains(page, []byte("<svg")) {
		t.Errorf("report of %d bytes, %v", len(page), err)
	}
	// The keys that the issue names, as a script reads them.
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(d.out.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"requests", "lost", "rehandshakes", "p99_ms", "events", "without_cid"} {
		if _, ok := keys[key]; !ok {
			t.Errorf("no key %s in %s", key, &d.out)
		}
	}
}

func TestDemoNamesTheNodeThatEnds(t *testing.T) {
	clitest.TakesSeconds(t)
	d := startDemo(t, "--duration", "30s", "--clients", "20", "--interval", "20ms")
	d.underWay()
	pid, ok := d.processes()["node2"]
	if !ok {
		t.Fatalf("no node2 in %v", d.processes())
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := d.ends(); code != cli.ExitFailure || !strings.Contains(d.view.String(), "node2 ended before its time, signal: killed") || d.out.Len() > 0 {
		t.Errorf("exit code %d, stdout %q\n%s", code, &d.out, d.view)
	}
}

func TestDemoInterruptedLeavesNothing(t *testing.T) {
	clitest.TakesSeconds(t)
	d := startDemo(t, "--duration", "30s", "--clients", "20", "--interval", "20ms")
	d.underWay()
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := d.ends(); code == 0 || strings.Contains(d.view.String(), "Sessions lost") {
		t.Errorf("exit code %d\n%s", code, d.view)
	}
}

// viewLines are lines of the view. One without figures yet, of a machine that was too busy, ends behind its name.
var viewLines = []*regexp.Regexp{
	regexp.MustCompile(`requests/s   `), regexp.MustCompile(`sessions with I`), regexp.MustCompile(`sent again`),
	regexp.MustCompile(`forwarded     `), regexp.MustCompile(`(?m)^ +clients(   |$)`),
}

// drawnOnce reports whether each line of the view can be seen exactly once.
func drawnOnce(text string) bool {
	for _, line := range viewLines {
		if len(line.FindAllString(text, 2)) != 1 {
			return false
		}
	}
	return true
}

// The view is one block at every width, with the verdict below it.
func TestDemoFitsTheTerminal(t *testing.T) {
	clitest.TakesSeconds(t)
	verdict := regexp.MustCompile(`Sessions lost: 0 with connection IDs, \d+ of \d+ without\.`)
	for _, size := range [][2]int{{40, 40}, {50, 40}, {80, 40}, {100, 50}, {160, 60}} { // 50: the last word of the verdict does not fit

		t.Run(strconv.Itoa(size[0]), func(t *testing.T) {
			t.Parallel()
			s := terminaltest.Start(t, size[0], size[1], os.Args[0], "demo", "--duration", "6s", "--clients", "20", "--interval", "20ms")
			code, text := s.Ended()
			view, rest, _ := strings.Cut(text, "\n  requests  ")
			if code != 0 || !drawnOnce(view) || !verdict.MatchString(strings.ReplaceAll(rest, "\n", " ")) {
				t.Errorf("exit code %d:\n%s", code, text)
			}
		})
	}
}

// A window that is resized while the demo runs shows the view once, and Ctrl-C leaves it as it is.
func TestDemoFollowsTheTerminal(t *testing.T) {
	clitest.TakesSeconds(t)
	s := terminaltest.Start(t, 100, 40, os.Args[0], "demo", "--duration", "600s", "--clients", "20", "--interval", "20ms")
	second := regexp.MustCompile(` (\d+) of 600 s`)
	at := 0
	for _, width := range []int{100, 60, 40, 130, 80} {
		s.Resize(width, 40)
		s.Wait("the next second", func(string) bool {
			text := s.Visible()
			now := second.FindStringSubmatch(text)
			if now == nil || !drawnOnce(text) {
				return false
			}
			n, err := strconv.Atoi(now[1])
			if err != nil || n <= at {
				return false
			}
			at = n
			return true
		})
	}
	s.Type("C-c")
	if code, _ := s.Ended(); code == 0 || !drawnOnce(s.Visible()) {
		t.Errorf("exit code %d:\n%s", code, s.Visible())
	}
}
