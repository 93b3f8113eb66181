package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Services end within 3 s; what measures has longer after an interrupt.
func TestEndTimes(t *testing.T) {
	for line, want := range map[string]time.Duration{
		"lb run": cli.EndWithin, "nat": cli.EndWithin, "turn gateway": cli.EndWithin, "tcp stats": cli.EndWithin, "coap server": cli.EndWithin, "lb status": cli.EndWithin,
		"tcp client": cli.CleanWithin, "bench run": cli.CleanWithin, "turn bench": cli.CleanWithin, "demo": cli.CleanWithin, "lab up": cli.CleanWithin,
	} {
		cmd, _, err := clitest.Root().Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		if got := cli.EndTime(cmd); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

// hangupAtOnce starts a command, sends SIGHUP as soon as it is in main, and returns it.
func hangupAtOnce(t *testing.T, args ...string) *clitest.Process {
	t.Helper()
	var r *os.File
	return clitest.StartBy(t, func(cmd *exec.Cmd) error {
		var w *os.File
		var err error
		if r, w, err = os.Pipe(); err != nil {
			return err
		}
		defer r.Close()
		cmd.ExtraFiles = []*os.File{w}
		cmd.Env = append(os.Environ(), clitest.StartedFD+"=3")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err = cmd.Start()
		w.Close()
		if err == nil {
			_, err = io.ReadAll(r)
		}
		return errors.Join(err, cmd.Process.Signal(syscall.SIGHUP))
	}, os.Args[0], args[0], args...)
}

// SIGHUP is safe from the first instruction on, and where there is something to reload, it is reloaded after the start.
func TestHangupDuringStartEndsNoProcess(t *testing.T) {
	clitest.TakesSeconds(t)
	file := filepath.Join(t.TempDir(), "weir.yaml")
	addresses := clitest.FreeAddresses(t, 5)
	if err := os.WriteFile(file, []byte(clitest.LBConfig(addresses[0], addresses[1])), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := map[string][]string{
		"lb":           {"lb", "run", "-c", file},
		"nat":          {"nat", addresses[2], addresses[3]},
		"coap server":  {"coap", "server", "--dtls-only", "--dtls", "127.0.0.1:0", "--workers", "1"},
		"turn gateway": {"turn", "gateway", "turn://u:p@" + addresses[4], "--workers", "1"},
	}
	for name, args := range commands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 6 {
				p := hangupAtOnce(t, args...) // waits until it answers
				if name == "lb" {
					for status := (v1.BalancerStatus{}); status.Reloads < 2; p.Status(&status) {
						p.Alive()
					}
				}
				p.Stop()
			}
		})
	}
	for name, args := range map[string][]string{
		"tcp server": {"tcp", "server", "--listen", "127.0.0.1:0", "--workers", "1"}, "tcp stats": {"tcp", "stats", "--listen", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 6 {
				hangupWithoutAdmin(t, args...)
			}
		})
	}
}

// Started with SIGHUP ignored, as by nohup or by trap ” HUP, a process outlives one that comes before main, and reloads at a later one.
func TestHangupBeforeMainIsIgnoredWhereItIsInherited(t *testing.T) {
	file, addresses := filepath.Join(t.TempDir(), "weir.yaml"), clitest.FreeAddresses(t, 2)
	if err := os.WriteFile(file, []byte(clitest.LBConfig(addresses[0], addresses[1])), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hangupAtExec := func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		for { // until the shell has become the program
			if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid)); err != nil || exe == self {
				return errors.Join(err, cmd.Process.Signal(syscall.SIGHUP))
			}
		}
	}
	for range 5 {
		p := clitest.StartBy(t, hangupAtExec, "/bin/sh", "lb", "-c", `trap '' HUP; exec "$0" "$@"`, self, "lb", "run", "-c", file)
		if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for status := (v1.BalancerStatus{}); status.Reloads < 2; p.Status(&status) {
			p.Alive()
		}
		p.Stop()
	}
}

// hangupWithoutAdmin is for commands that say on standard error that they are at work.
func hangupWithoutAdmin(t *testing.T, args ...string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(os.Args[0], args...)
	notes := new(clitest.LockedBuffer)
	cmd.ExtraFiles, cmd.Stderr, cmd.Env = []*os.File{w}, notes, append(os.Environ(), clitest.StartedFD+"=3")
	err = clitest.StartChild(cmd)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(r)
	if err := errors.Join(err, cmd.Process.Signal(syscall.SIGHUP)); err != nil {
		t.Fatal(err)
	}
	clitest.WaitFor(t, notes, `127.0.0.1:(\d+)`)
	if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
		t.Errorf("%v after SIGHUP at the start: %v\n%s", args, err, notes)
	}
}

// hungFolder is a file system whose server does not answer: every look at a name in it blocks.
func hungFolder(t *testing.T) string {
	t.Helper()
	netlabtest.Root(t)
	folder := t.TempDir()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	options := fmt.Sprintf("fd=%d", fuse.Fd()) + ",rootmode=40000,user_id=0,group_id=0"
	if err := unix.Mount("weir-test", folder, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fuse.Close() // who waits gets an error
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// A file system that hangs, and a FIFO, hold up neither the watch nor a signal.
func TestRootNoFileBlocksTheBalancer(t *testing.T) {
	clitest.TakesSeconds(t)
	hung := filepath.Join(hungFolder(t), "weir.yaml")
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	addresses := clitest.FreeAddresses(t, 3)
	replace := func(make func(path string) error) {
		t.Helper()
		if err := errors.Join(make(file+".next"), os.Rename(file+".next", file)); err != nil {
			t.Fatal(err)
		}
	}
	good := func(backends ...string) func(string) error {
		return func(path string) error {
			return os.WriteFile(path, []byte(clitest.LBConfig(addresses[0], backends...)), 0o600)
		}
	}
	replace(good(addresses[1]))
	p := clitest.Start(t, "lb", "lb", "run", "-c", file)
	await := func(what string, met func(*v1.BalancerStatus) bool) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			var status v1.BalancerStatus
			if p.Status(&status); met(&status) {
				return
			}
			if p.Alive(); time.Now().After(end) {
				t.Fatalf("%s: %+v", what, status)
			}
		}
	}
	for name, c := range map[string]struct {
		make func(string) error
		want string
	}{
		"FIFO":                {func(path string) error { return unix.Mkfifo(path, 0o600) }, "is a pipe; name a regular file"},
		"hanging file system": {func(path string) error { return os.Symlink(hung, path) }, "weir.yaml does not answer for 5s"},
	} {
		replace(c.make)
		await(name, func(s *v1.BalancerStatus) bool { return strings.Contains(s.Error, c.want) })
		failures := uint64(0)
		await(name, func(s *v1.BalancerStatus) bool { failures = s.Failures; return true })
		if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		await(name+": SIGHUP", func(s *v1.BalancerStatus) bool { return s.Failures > failures })
		replace(good(addresses[1:]...))
		await(name+": the next good file", func(s *v1.BalancerStatus) bool {
			return s.Error == "" && len(s.Services) == 1 && len(s.Services[0].Backends) == 2
		})
		replace(good(addresses[1]))
		await(name+": and another", func(s *v1.BalancerStatus) bool { return len(s.Services[0].Backends) == 1 })
	}
	replace(func(path string) error { return os.Symlink(hung, path) })
	p.Stop() // while it reads, or after: it must be clean
}

// A process that hangs at its start ends on a signal.
func TestRootSignalEndsAHangingStart(t *testing.T) {
	hung := hungFolder(t)
	for name, args := range map[string][]string{
		"lb":           {"lb", "run", "-c", filepath.Join(hung, "weir.yaml")},
		"turn gateway": {"turn", "gateway", "-c", filepath.Join(hung, "gateway.yaml")},
		"coap server":  {"coap", "server", "--psk-file", filepath.Join(hung, "psk")},
		"token":        {"lb", "status", "--admin-token-file", filepath.Join(hung, "token")},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], args...)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd.ExtraFiles, cmd.Env = []*os.File{w}, append(os.Environ(), clitest.StartedFD+"=3")
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			err = cmd.Start()
			w.Close()
			if err == nil {
				_, err = io.ReadAll(r)
			}
			if err := errors.Join(err, cmd.Process.Signal(syscall.SIGTERM)); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it says that all is well")
				}
			case <-time.After(60 * time.Second):
				t.Error("it does not end", cmd.Process.Kill())
			}
		})
	}
}
