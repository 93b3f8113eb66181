package handover

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func kill(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// killAndWait returns when the process holds no lock any more.
func killAndWait(t *testing.T, pid int) {
	t.Helper()
	kill(t, pid, unix.SIGKILL)
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ := strings.Cut(string(text), ") ")
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // others may still hold its files while the first is a zombie
		if err != nil || strings.HasPrefix(state, "Z") && len(threads) <= 1 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Killed, the child is followed by another one on the same socket with the same records; nothing that is sent meanwhile
// is lost: exactly one datagram is sent for each answer.
func TestKilledChildIsFollowed(t *testing.T) {
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String())
	a := s.request("first")
	for round := range 3 {
		kill(t, a.pid, unix.SIGKILL)
		text := fmt.Sprint("round ", round)
		if _, err := s.conn.Write([]byte(text)); err != nil {
			t.Fatalf("the socket was gone: %v", err)
		}
		b := s.read(text, false)
		if b.pid == a.pid {
			continue // read before it was dead
		}
		if b.count != a.count+1 || b.starts != a.starts+1 || b.supervisor != "yes" || b.supervisorPID != s.cmd.Process.Pid {
			t.Fatalf("after a kill: %+v, before it: %+v", b, a)
		}
		a = b
	}
	if a.starts == 1 {
		t.Error("no kill was followed by a start")
	}
}

// A panic ends with code 2, like a usage error, and is a crash all the same.
func TestPanicIsACrash(t *testing.T) {
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String())
	a := s.request("first")
	if _, err := s.conn.Write([]byte("panic")); err != nil {
		t.Fatal(err)
	}
	if b := s.request("second"); b.starts != 2 || b.count != a.count+1 {
		t.Errorf("after a panic: %+v, before it: %+v", b, a)
	}
}

// SIGTERM goes to the child, its exit code to whoever waits; SIGHUP goes to the child.
func TestSignalsAndExitCode(t *testing.T) {
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String())
	s.request("first")
	kill(t, s.cmd.Process.Pid, unix.SIGHUP)
	for s.request("hung up?").hangups != 1 {
		continue
	}
	kill(t, s.cmd.Process.Pid, unix.SIGTERM)
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, the child's was 7", code)
	}
}

// A child that hangs is not waited for at a second signal.
func TestASecondSignalEndsAHangingChild(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String())
	kill(t, s.request("first").pid, unix.SIGSTOP)
	kill(t, s.cmd.Process.Pid, unix.SIGTERM)
	kill(t, s.cmd.Process.Pid, unix.SIGINT) // not SIGTERM again, which would be one signal
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code <= 128 {
		t.Errorf("exit code %d", code)
	}
}

// An order that fails before it serves ends the supervisor with the child's code: no loop over a wrong configuration.
func TestOrderlyFailureEnds(t *testing.T) {
	address := netlabtest.UDPAddress(t).String()
	s := start(t, os.Args[0], address, stateEnv+"=/dev/null/state")
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 4 {
		t.Errorf("exit code %d, want 4", code)
	}
}

// Children that die of what is kept: after five of them it is dropped, and the next one starts clean and serves.
func TestCrashLoopDropsTheState(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		if dir != "" {
			os.Chmod(dir, 0o700)
		}
		s := start(t, os.Args[0], netlabtest.UDPAddress(t).String(), stateEnv+"="+dir)
		if a := s.request("poison"); a.count != poisoned {
			t.Fatalf("%+v", a)
		}
		kill(t, s.request("poison").pid, unix.SIGKILL)
		s.output.has(t, "dropped, the next one starts clean")
		if a := s.request("alive?"); a.count > 60 || a.supervisor != "yes" || a.sockets > 2 {
			t.Errorf("after the state was dropped: %+v", a)
		}
		if dir != "" {
			if _, err := os.Stat(dir + "/journal.bad"); err != nil {
				t.Error(err)
			}
		}
	}
}

// However often and fast a child that served is killed, its sockets and records stay, and it is followed by another one.
func TestKillsOfServingChildrenLoseNothing(t *testing.T) {
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String(), stableEnv+"=1h") // every one is a crash in a row
	a := s.request("sockets 50")
	for range 20 {
		kill(t, a.pid, unix.SIGKILL)
		b := s.request("after")
		for b.pid == a.pid {
			b = s.request("after")
		}
		if b.count <= a.count || b.sockets < 50 {
			t.Fatalf("after a kill %+v, before it %+v", b, a)
		}
		a = b
	}
	if a.starts != 21 {
		t.Errorf("%d starts after 20 kills", a.starts)
	}
}

// Children that are killed while they start, as a system without memory does it, keep their state for longer than those
// that crash; and the supervisor goes on starting new ones.
func TestSupervisorNeverGivesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String(), stuckEnv+"=starting")
	kills := 0
	for kills < 25 {
		for _, pid := range childrenOf(t, s.cmd.Process.Pid) {
			if unix.Kill(pid, unix.SIGKILL) == nil {
				kills++
			}
		}
		select {
		case <-s.ended:
			t.Fatalf("the supervisor ended after %d kills", kills)
		case <-time.After(time.Millisecond):
		}
		if kills < 10 && strings.Contains(s.output.all(), "starts clean") {
			t.Fatalf("the state was dropped after %d kills", kills)
		}
	}
}

// A child that does not take the signal to end is killed, whether it serves or not.
func TestStuckChildIsKilled(t *testing.T) {
	for _, when := range []string{"ready", "starting"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := start(t, os.Args[0], netlabtest.UDPAddress(t).String(), stuckEnv+"="+when)
			if when == "ready" {
				s.request("first")
			} else {
				s.output.has(t, "stuck")
			}
			kill(t, s.cmd.Process.Pid, unix.SIGTERM)
			<-s.ended
			if code := s.cmd.ProcessState.ExitCode(); code != 128+int(unix.SIGTERM) {
				t.Errorf("exit code %d, want %d", code, 128+int(unix.SIGTERM))
			}
		})
	}
}

// With a state directory the records survive the death of all processes.
func TestStateSurvivesEverything(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	address := netlabtest.UDPAddress(t).String()
	s := start(t, os.Args[0], address, stateEnv+"="+dir)
	for range 4 {
		s.request("count")
	}
	a := s.request("last")
	kill(t, s.cmd.Process.Pid, unix.SIGKILL)
	<-s.ended
	killAndWait(t, a.pid)
	if b := start(t, os.Args[0], address, stateEnv+"="+dir).request("new"); b.count != a.count+1 {
		t.Errorf("count %d after the restart, %d before", b.count, a.count)
	}
}

// The child of a supervisor that ended goes on, and says that it is alone.
func TestSupervisorEnds(t *testing.T) {
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String())
	a := s.request("first")
	kill(t, s.cmd.Process.Pid, unix.SIGKILL)
	<-s.ended
	t.Cleanup(func() { unix.Kill(a.pid, unix.SIGKILL) })
	s.output.has(t, "serves on alone")
	if _, err := s.conn.Write([]byte("alone")); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 2000)
	for {
		n, err := s.conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(buffer[:n]); strings.HasPrefix(text, "alone") {
			if !strings.Contains(text, fmt.Sprintf("pid=%d ", a.pid)) || !strings.Contains(text, "supervisor=gone/0") {
				t.Errorf("%s", text)
			}
			return
		}
	}
}

// A supervisor stores as many sockets as its file limit allows; the child counts the rest and serves on, and its successor
// gets all that were stored.
func TestSocketsAreBounded(t *testing.T) {
	const limit = 300
	address := netlabtest.UDPAddress(t).String()
	s := startCommand(t, exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, limit), os.Args[0], address), address)
	const room = limit - spareFiles
	a := s.request("sockets 1000")
	for a.sockets < room { // asked again meanwhile
		a = s.request("how many?")
	}
	if want := 1000 + 2 - room; a.sockets != room || a.refused%want != 0 || a.refused == 0 {
		t.Errorf("%d sockets stored and %d refused; want %d and a multiple of %d", a.sockets, a.refused, room, want)
	}
	kill(t, a.pid, unix.SIGKILL)
	if b := s.request("and now?"); b.sockets != room || b.count <= a.count {
		t.Errorf("after a kill %+v, before it %+v", b, a)
	}
}

// Neither descriptors nor goroutines nor memory grow with the number of restarts.
func TestRestartsCostNothing(t *testing.T) {
	s := start(t, os.Args[0], netlabtest.UDPAddress(t).String())
	s.request("sockets 50")
	restart := func() {
		before := s.request("before")
		kill(t, before.pid, unix.SIGKILL)
		for s.request("after").pid == before.pid {
			continue
		}
	}
	restart()
	files := openFiles(t, s.cmd.Process.Pid)
	threads := len(mustRead(t, fmt.Sprintf("/proc/%d/task", s.cmd.Process.Pid)))
	for range 15 {
		restart()
	}
	if after := openFiles(t, s.cmd.Process.Pid); after > files+1 {
		t.Errorf("%d open files after 15 restarts, %d before them", after, files)
	}
	if after := len(mustRead(t, fmt.Sprintf("/proc/%d/task", s.cmd.Process.Pid))); after > threads+8 {
		t.Errorf("%d threads after 15 restarts, %d before them", after, threads)
	}
}

func openFiles(t *testing.T, pid int) int { return len(mustRead(t, fmt.Sprintf("/proc/%d/fd", pid))) }

func mustRead(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	for _, thread := range mustRead(t, fmt.Sprintf("/proc/%d/task", pid)) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil {
			continue // the thread is gone
		}
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}
