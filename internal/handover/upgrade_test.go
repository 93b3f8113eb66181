package handover

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// SIGUSR2 puts the binary that is at the path now in the supervisor's place, under the same process id: the socket and the
// record go on, and no datagram is lost that is sent meanwhile.
func TestUpgrade(t *testing.T) {
	path := inTemp(t)
	copyBinary(t, path, "")
	s := start(t, path, netlabtest.UDPAddress(t).String())
	a := s.request("first")
	if a.version != "original" {
		t.Fatalf("%+v", a)
	}
	for i, version := range []string{"second", "third"} {
		copyBinary(t, path, version)
		kill(t, s.cmd.Process.Pid, unix.SIGUSR2)
		b := a
		for b.version != version {
			text := "for " + version
			if _, err := s.conn.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			next := s.read(text, false)
			if next.count != b.count+1 {
				t.Fatalf("datagram %d after %d", next.count, b.count)
			}
			b = next
		}
		if b.upgrades != i+1 || b.supervisorPID != s.cmd.Process.Pid || b.pid == a.pid {
			t.Errorf("after upgrade %d: %+v", i+1, b)
		}
		a = b
	}
	kill(t, s.cmd.Process.Pid, unix.SIGTERM)
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d after upgrades, want 7", code)
	}
}

// A binary that does not run, or not as a successor, is refused before anything stops; the child receives the reason.
func TestUpgradeRefused(t *testing.T) {
	path := inTemp(t)
	copyBinary(t, path, "")
	s := start(t, path, netlabtest.UDPAddress(t).String())
	a := s.request("first")
	for name, c := range map[string]struct {
		spoil func()
		want  string
	}{
		"rather not": {func() { copyBinary(t, path, "refuses") }, "I would rather not"},
		"no binary": {func() {
			os.Remove(path)
			if err := os.WriteFile(path, []byte("\x7fELF but no more"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "exec format error"},
		"gone": {func() { os.Remove(path) }, "no such file"},
		"another program": {func() {
			os.Remove(path)
			if err := os.WriteFile(path, []byte("#!/bin/sh\necho weir 1.0\n"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, `got \"weir 1.0\"`},
	} {
		t.Run(name, func(t *testing.T) {
			c.spoil()
			kill(t, s.cmd.Process.Pid, unix.SIGUSR2)
			s.output.has(t, c.want)
			if b := s.request(name); b.pid != a.pid || b.version != "original" || b.upgrades != 0 {
				t.Errorf("after a refused upgrade: %+v, before it: %+v", b, a)
			}
		})
	}
	s.request("upgrade") // by the child, which receives the reason
	s.output.has(t, "refused: "+path)
	kill(t, a.pid, unix.SIGKILL) // the old binary goes on being the one that restarts use
	if b := s.request("killed"); b.version != "original" || b.count <= a.count {
		t.Errorf("after a kill: %+v, before it: %+v", b, a)
	}
}

// A binary that passes the probe and then dies, or ends in an error, before it serves is given up: the old one is back with
// everything.
func TestUpgradeFallsBack(t *testing.T) {
	for _, version := range []string{"dies", "fails"} {
		t.Run(version, func(t *testing.T) {
			path := inTemp(t)
			copyBinary(t, path, "")
			s := start(t, path, netlabtest.UDPAddress(t).String())
			a := s.request("first")
			copyBinary(t, path, version)
			if _, err := s.conn.Write([]byte("upgrade")); err != nil {
				t.Fatal(err)
			}
			s.output.has(t, "upgrade failed: the old binary is back")
			if _, err := s.conn.Write([]byte("still")); err != nil {
				t.Fatal(err)
			}
			b := s.read("still", false)
			if b.version != "original" || b.count != a.count+2 || b.upgrades != 0 || b.supervisorPID != s.cmd.Process.Pid {
				t.Errorf("after an upgrade that failed: %+v, before it: %+v", b, a)
			}
			copyBinary(t, path, "better")
			kill(t, s.cmd.Process.Pid, unix.SIGUSR2)
			for deadline := time.Now().Add(2 * time.Minute); b.version != "better"; b = s.request("better?") {
				if time.Now().After(deadline) {
					t.Fatalf("no upgrade: %+v", b)
				}
			}
		})
	}
}

// What arrives while no child runs, and nothing reads signals, is left to the successor: it ends, or tells its child to read its configuration again.
func TestSuccessorLearnsOfSignals(t *testing.T) {
	s := &supervisor{held: newHeld(), signals: make(chan os.Signal, 16)}
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGUSR2, unix.SIGINT, unix.SIGTERM} {
		s.signals <- sig
	}
	file, err := newMemory("test")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := s.bequeath(file, -1, ""); err != nil {
		t.Fatal(err)
	}
	l, err := readLegacy(file)
	if err != nil || l.Stops != 2 || l.Stop != unix.SIGTERM || !l.Hangup || l.Hello.Upgrades != 1 || len(s.signals) != 0 {
		t.Errorf("%+v, %v; %d signals are left", l, err, len(s.signals))
	}
}
