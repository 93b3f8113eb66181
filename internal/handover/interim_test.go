package handover

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// ends sends SIGTERM to the supervisor and waits until it has ended.
func (s *supervised) ends() {
	s.t.Helper()
	kill(s.t, s.cmd.Process.Pid, unix.SIGTERM)
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 7 {
		s.t.Errorf("exit code %d, the child's was 7", code)
	}
}

// A datagram that is sent once, between the end of a server and the start of the next one with its state directory, has an answer.
func TestSocketsStayOpenUntilTheNextStart(t *testing.T) {
	address, state := netlabtest.UDPAddress(t).String(), stateEnv+"="+filepath.Join(t.TempDir(), "a directory whose name is longer than that of a Unix socket may be, which is one hundred and seven bytes")
	s := start(t, os.Args[0], address, state, holdEnv+"=1m")
	before := s.request("first")
	for range 3 {
		s.ends()
		if _, err := s.conn.Write([]byte("between")); err != nil {
			t.Fatalf("the socket was gone: %v", err)
		}
		next := start(t, os.Args[0], address, state, holdEnv+"=1m")
		next.conn = s.conn
		after := next.read("between", false)
		if after.count != before.count+1 || after.supervisorPID != next.cmd.Process.Pid || after.starts != 1 || after.sockets != before.sockets {
			t.Fatalf("after a restart %+v, before it %+v", after, before)
		}
		kill(t, after.pid, unix.SIGKILL) // the new supervisor holds them too
		if s, before = next, next.request("after a kill"); before.starts != 2 {
			t.Fatalf("after a kill: %+v", before)
		}
	}
}

// If no server comes, the sockets end with their time, and a later start is one like any other.
func TestHeldSocketsEndWithTheirTime(t *testing.T) {
	address, dir := netlabtest.UDPAddress(t), filepath.Join(t.TempDir(), "state")
	s := start(t, os.Args[0], address.String(), stateEnv+"="+dir, holdEnv+"=100ms")
	before := s.request("first")
	s.ends()
	free(t, address)
	if _, err := os.Stat(filepath.Join(dir, socketsFile)); err != nil {
		t.Errorf("no process listened in the directory: %v", err)
	}
	next := start(t, os.Args[0], address.String(), stateEnv+"="+dir, holdEnv+"=0s")
	if after := next.request("later"); after.count <= before.count {
		t.Errorf("after a restart %+v, before it %+v", after, before)
	}
	next.ends()
	bind(t, address) // at once
}

// Without a directory, after a second signal and in a service of systemd the sockets end with the server.
func TestSocketsAreNotHeld(t *testing.T) {
	for name, env := range map[string][]string{"no directory": {holdEnv + "=1m"}, "systemd": {holdEnv + "=1m", stateEnv + "=" + t.TempDir(), "NOTIFY_SOCKET=@none"}} {
		address := netlabtest.UDPAddress(t)
		if dir := t.TempDir(); name == "systemd" {
			os.Chmod(dir, 0o700)
			env[1] = stateEnv + "=" + dir
		}
		s := start(t, os.Args[0], address.String(), env...)
		s.request("first")
		s.ends()
		bind(t, address)
	}
}

// Sockets of another network namespace are not taken: clients of this one do not reach them.
func TestSocketsOfAnotherNetworkAreNotTaken(t *testing.T) {
	dir := t.TempDir()
	for network, want := range map[uint64]int{networkNamespace(): 1, 1: 0} {
		listener, err := listenAt(dir)
		if err != nil {
			t.Fatal(err)
		}
		sockets := newHeld()
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		sockets.store(message{body: []byte("socket"), fds: []int{fd}})
		given := make(chan error, 1)
		go func() {
			i := interim{Protocol: protocol, For: time.Minute, Network: network}
			given <- i.give(listener, sockets)
		}()
		taken, err := takeInterim(dir)
		if err := errors.Join(err, <-given); err != nil || len(taken.fds) != want {
			t.Errorf("%d of %d sockets, %v", len(taken.fds), want, err)
		}
		taken.clear()
		sockets.clear()
		listener.Close()
		if taken, err := takeInterim(dir); err != nil || len(taken.fds) > 0 {
			t.Errorf("no process listens any more: %v, %v", taken.fds, err)
		}
	}
}

// free waits until an address is free.
func free(t *testing.T, address netip.AddrPort) {
	t.Helper()
	netlabtest.Eventually(t, "the address is free", func() bool {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

func bind(t *testing.T, address netip.AddrPort) {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
	if err != nil {
		t.Fatalf("the address is in use: %v", err)
	}
	conn.Close()
}
