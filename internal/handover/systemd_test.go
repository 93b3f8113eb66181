package handover

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// The real systemd is tested by TestRootTurnSurvivesUnderSystemd of internal/cli/turn.

// serviceManager is the receiving end of sd_notify(3).
type serviceManager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newServiceManager(t *testing.T) *serviceManager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv(notifyEnv, path)
	return &serviceManager{t: t, conn: conn}
}

// next returns the lines of the next message, and how many descriptors came with it.
func (m *serviceManager) next() (lines []string, fds int) {
	m.t.Helper()
	b, rights := make([]byte, 4096), make([]byte, 256)
	_ = m.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, rn, _, _, err := m.conn.ReadMsgUnix(b, rights)
	if err != nil {
		m.t.Fatal(err)
	}
	got := parseRights(rights[:rn])
	closeAll(got)
	return strings.Split(string(b[:n]), "\n"), len(got)
}

func (m *serviceManager) wants(fds int, lines ...string) {
	m.t.Helper()
	if got, n := m.next(); !slices.Equal(got, lines) || n != fds {
		m.t.Errorf("got %q with %d descriptors, want %q with %d", got, n, lines, fds)
	}
}

func openUnderSystemd(t *testing.T) *Store {
	t.Helper()
	k, err := Open(Options{State: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// A descriptor is replaced by storing the new one first; names contain no colon; what is not stored is not removed.
func TestSystemdStore(t *testing.T) {
	m := newServiceManager(t)
	t.Setenv(storeEnv, "2")
	k := openUnderSystemd(t)
	hold := func(name string, want error) {
		t.Helper()
		if err := k.Hold(name, 0); !errors.Is(err, want) {
			t.Errorf("hold %s: %v, want %v", name, err, want)
		}
	}
	hold("relay/[::1]:5", nil)
	m.wants(1, "FDSTORE=1", "FDPOLL=0", "FDNAME=relay/[%3a%3a1]%3a5#1")
	hold("relay/[::1]:5", nil)
	m.wants(1, "FDSTORE=1", "FDPOLL=0", "FDNAME=relay/[%3a%3a1]%3a5#2")
	m.wants(0, "FDSTOREREMOVE=1", "FDNAME=relay/[%3a%3a1]%3a5#1")
	hold("b", nil)
	m.wants(1, "FDSTORE=1", "FDPOLL=0", "FDNAME=b#1")
	hold("c", ErrFull)
	k.Drop("c")
	k.Drop("relay/[::1]:5")
	m.wants(0, "FDSTOREREMOVE=1", "FDNAME=relay/[%3a%3a1]%3a5#2")
	hold("c", nil)
	m.wants(1, "FDSTORE=1", "FDPOLL=0", "FDNAME=c#1")
	k.Ready()
	m.wants(0, "READY=1")
	k.Stopping()
	m.wants(0, "STOPPING=1")
	if s := k.Stats(); s.Supervisor != "systemd" || s.Sockets != 2 || s.Capacity != 2 || s.Refused != 1 {
		t.Errorf("%+v", s)
	}
	if err := k.RequestUpgrade(); err == nil || !strings.Contains(err.Error(), "systemctl restart") {
		t.Errorf("upgrade: %v", err)
	}
}

// stores applies messages as systemd does, until n descriptors were stored, replaced ones included.
func (m *serviceManager) stores(held map[string]bool, n int) {
	m.t.Helper()
	for n > 0 {
		lines, fds := m.next()
		name, _ := strings.CutPrefix(lines[len(lines)-1], "FDNAME=")
		if lines[0] == "FDSTOREREMOVE=1" {
			if !held[name] {
				m.t.Errorf("%s is removed before it was stored", name)
			}
			delete(held, name)
			continue
		}
		if lines[0] != "FDSTORE=1" || fds != 1 {
			m.t.Fatalf("%q with %d descriptors", lines, fds)
		}
		held[name] = true
		n--
	}
}

// While systemd does not read, sockets wait and nothing is refused. Later it holds the last of each name, and nothing
// that was dropped.
func TestLateSystemd(t *testing.T) {
	m := newServiceManager(t)
	k := openUnderSystemd(t)
	before := openFiles(t, os.Getpid())
	hold := func(name string) {
		t.Helper()
		if err := k.Hold(name, 0); err != nil {
			t.Errorf("hold %s: %v", name, err)
		}
	}
	hold("replaced")
	hold("dropped")
	names := 0
	for ; k.Stats().Waiting < 3; names++ {
		hold(strconv.Itoa(names))
	}
	hold("replaced")
	k.Drop("dropped")
	hold("replaced")
	k.Drop(strconv.Itoa(names - 1)) // it was never sent
	if s := k.Stats(); s.Refused != 0 || s.Waiting != 4 || s.Sockets != names-1 {
		t.Errorf("%+v with %d names", s, names)
	}
	held := map[string]bool{}
	m.stores(held, names+2)
	netlabtest.Eventually(t, "every socket to be at systemd", func() bool { return k.Stats().Waiting == 0 })
	hold("last")
	m.stores(held, 1)
	want := map[string]bool{"replaced#2": true, "last#1": true}
	for i := range names - 1 {
		want[strconv.Itoa(i)+"#1"] = true
	}
	if !maps.Equal(held, want) {
		t.Errorf("systemd holds %v, want %v", held, want)
	}
	if s := k.Stats(); s.Refused != 0 || s.Sockets != len(want) {
		t.Errorf("%+v, want %d sockets", s, len(want))
	}
	if after := openFiles(t, os.Getpid()); after != before {
		t.Errorf("%d open files, %d before", after, before)
	}
}

// What still waits when the process ends is sent then, or closed.
func TestLateSystemdAtTheEnd(t *testing.T) {
	m := newServiceManager(t)
	k := openUnderSystemd(t)
	names := 0
	for ; k.Stats().Waiting < 3; names++ {
		if err := k.Hold(strconv.Itoa(names), 0); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		k.Close()
	}()
	held := map[string]bool{}
	m.stores(held, names)
	<-closed
	if len(held) != names {
		t.Errorf("systemd holds %v of %d", held, names)
	}
}

// SIGUSR2 hands over; without it Close does not wait.
func TestSystemdHandsOver(t *testing.T) {
	newServiceManager(t)
	openUnderSystemd(t).Close()
	k := openUnderSystemd(t)
	if err := unix.Kill(os.Getpid(), unix.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	select {
	case <-k.HandOver():
	case <-time.After(20 * time.Second):
		t.Error("no hand-over after SIGUSR2")
	}
}

// A process that ended between the two messages of a replacement leaves two generations: the later one counts, in
// whatever order they come. Descriptors of socket units stay as they are.
func TestSystemdListenFDs(t *testing.T) {
	m := newServiceManager(t)
	const first = 700
	names := []string{"a%3a1#2", "a%3a1#3", "weir.socket", "b#2", "b#1"}
	for i := range names {
		pipe := make([]int, 2)
		if err := unix.Pipe2(pipe, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := unix.Dup3(pipe[0], first+i, 0); err != nil {
			t.Fatal(err)
		}
		closeAll(pipe)
	}
	k := openUnderSystemd(t)
	set := func(pid, count, names string) {
		t.Setenv(pidEnv, pid)
		t.Setenv(fdsEnv, count)
		t.Setenv(namesEnv, names)
	}
	set(strconv.Itoa(os.Getpid()+1), "5", "x")
	if err := k.listenFDs(k.systemd, first); err != nil || len(k.Names()) != 0 {
		t.Errorf("another process's descriptors: %v, %v", k.Names(), err)
	}
	for _, count := range []string{"", "-1", "4", "99999999"} {
		set(strconv.Itoa(os.Getpid()), count, strings.Join(names, ":"))
		if err := k.listenFDs(k.systemd, first); err == nil {
			t.Errorf("count %q: no error", count)
		}
	}
	set(strconv.Itoa(os.Getpid()), "5", strings.Join(names, ":"))
	if err := k.listenFDs(k.systemd, first); err != nil {
		t.Fatal(err)
	}
	m.wants(0, "FDSTOREREMOVE=1", "FDNAME=a%3a1#2")
	m.wants(0, "FDSTOREREMOVE=1", "FDNAME=b#1")
	for name, want := range map[string]int{"a:1": first + 1, "b": first + 3} {
		if fd, ok := k.Take(name); fd != want || !ok {
			t.Errorf("%s is descriptor %d, %v; want %d", name, fd, ok, want)
		}
	}
	for fd, open := range map[int]bool{first: false, first + 1: true, first + 2: true, first + 3: true, first + 4: false} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); (err == nil) != open {
			t.Errorf("descriptor %d: %v, want open %v", fd, err, open)
		}
	}
	closeAll([]int{first + 1, first + 2, first + 3})
	if _, set := os.LookupEnv(fdsEnv); set {
		t.Errorf("%s is left for children", fdsEnv)
	}
	k.Drop("a:1")
	m.wants(0, "FDSTOREREMOVE=1", "FDNAME=a%3a1#3")
}

// The watchdog is answered only while the process is alive.
func TestSystemdWatchdog(t *testing.T) {
	m := newServiceManager(t)
	k := openUnderSystemd(t)
	ctx, cancel := context.WithCancel(t.Context())
	k.Watch(ctx, func() { t.Error("asked without a watchdog") })
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()+1))
	k.Watch(ctx, func() { t.Error("requested another process") })
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	alive, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		k.Watch(ctx, func() {
			select {
			case <-alive:
			case <-ctx.Done():
			}
		})
	}()
	for range 3 {
		alive <- struct{}{}
		m.wants(0, "WATCHDOG=1")
	}
	_ = m.conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := m.conn.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v from a process that hangs", n, err)
	}
	cancel()
	<-done
}

// An answer to the watchdog that finds systemd's queue full of descriptors is not lost.
func TestSystemdWatchdogWaitsForSpace(t *testing.T) {
	m := newServiceManager(t)
	k := openUnderSystemd(t)
	stored := 0
	for ; k.systemd.store(sendTimeout, strconv.Itoa(stored), 0) == nil; stored++ { // until the queue is full
	}
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(time.Hour.Microseconds(), 10)) // one answer, at the beginning
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	k.systemd.late = false
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Watch(ctx, func() {})
	}()
	netlabtest.Eventually(t, "an answer finds no space", func() bool {
		k.systemd.mu.Lock()
		defer k.systemd.mu.Unlock()
		return k.systemd.late
	})
	for range stored {
		m.next()
	}
	m.wants(0, "WATCHDOG=1")
	cancel()
	<-done
}

func TestFDNames(t *testing.T) {
	for _, name := range []string{"echo", "relay/192.0.2.1:49152", "a%b#c d", "\x00\xff", journalName} {
		encoded := encodeFDName(name, 18)
		if got, generation, ok := decodeFDName(encoded); got != name || generation != 18 || !ok {
			t.Errorf("%q is %q, then %q %d %v", name, encoded, got, generation, ok)
		}
		if strings.ContainsFunc(encoded, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
			t.Errorf("%q is no name for systemd", encoded)
		}
	}
	for _, text := range []string{"", "stored", "a#", "a#0", "#1", "a%#1", "a%4#1", "a%zz#1", "a#1#2", "weir.socket"} {
		if name, generation, ok := decodeFDName(text); ok {
			t.Errorf("%q is %q %d", text, name, generation)
		}
	}
}
