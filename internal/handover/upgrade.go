package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// legacy is the state that a supervisor passes, in a memfd, to the binary that replaces it.
type legacy struct {
	Protocol int            `json:"protocol"`
	Sockets  map[string]int `json:"sockets"`
	Refused  uint64         `json:"refused"`
	Hello    hello          `json:"hello"`
	OldExe   int            `json:"old_exe"` // descriptor of the previous binary; -1: none
	Stops    int            `json:"stops"`
	Stop     syscall.Signal `json:"stop"`
	Hangup   bool           `json:"hangup,omitempty"`
	Why      string         `json:"why"` // why the new binary was abandoned; empty: an upgrade
}

// Probing reports whether a supervisor is testing whether this binary could replace it: print Protocol and exit.
func Probing() bool { return os.Getenv(probeEnv) != "" }

// Protocol is what a binary prints when it is probed.
func Protocol() string { return "weir keep protocol " + strconv.Itoa(protocol) }

// upgrade tests, while the child serves, whether the binary at the path runs.
func (s *supervisor) upgrade(c *child) {
	if c.leaving {
		return // an upgrade is in progress
	}
	if c.probed != nil {
		c.again = true
		return
	}
	c.probed = make(chan error, 1)
	probed := c.probed
	go func() { probed <- probe(s.config.Path, s.config.Args) }()
}

func probe(path string, args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Args, cmd.Env = args, environment(probeEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, complaint limited
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = probeTime / 10
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s does not run: %w: %s", path, err, strings.TrimSpace(complaint.text))
	}
	if got := strings.TrimSpace(out.text); got != Protocol() {
		return fmt.Errorf("%s: want %q, got %q: it cannot take over the sockets", path, Protocol(), got)
	}
	return nil
}

// limited stores the first kilobyte of a probed binary's output.
type limited struct{ text string }

func (l *limited) Write(p []byte) (int, error) {
	l.text += string(p[:min(len(p), max(0, 1024-len(l.text)))])
	return len(p), nil
}

// probed continues an upgrade after the test, or cancels it.
func (s *supervisor) probed(c *child, err error) {
	if err != nil {
		s.log.Error("upgrade refused: the old binary goes on", "error", err)
		text := err.Error()
		_ = c.wire.send(sendTimeout, opRefused, []byte(text[:min(len(text), maxMessage-1)]))
		if c.again {
			c.again = false
			s.upgrade(c)
		}
		return
	}
	s.log.Info("upgrade: the serving process hands over", "binary", s.config.Path, "sockets", len(s.held.fds))
	c.leaving = true
	s.giveTime(c, leaveTime)
	_ = c.wire.send(sendTimeout, opHandOver, nil)
}

// become replaces this process by a binary and returns only on failure. why is set when the previous binary is
// started again.
func (s *supervisor) become(path, why string) (err error) {
	release, err := holdSignals()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	inherited, old := []int{}, -1
	if why == "" {
		if old, err = unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open the own binary: %w", err)
		}
		defer unix.Close(old)
		inherited = append(inherited, old)
	}
	file, err := newMemory("weir-keep")
	if err != nil {
		return err
	}
	defer file.Close()
	inherited = append(inherited, int(file.Fd()))
	for _, fd := range s.held.fds {
		inherited = append(inherited, fd)
	}
	if err := inherit(inherited, true); err != nil {
		return err
	}
	if err := s.bequeath(file, old, why); err != nil {
		return errors.Join(err, inherit(inherited, false))
	}
	err = syscall.Exec(path, s.config.Args, environment(successorEnv+"="+strconv.Itoa(int(file.Fd()))))
	return errors.Join(fmt.Errorf("exec %s: %w", path, err), inherit(inherited, false))
}

// bequeath writes what the successor has to know, with the signals that have arrived until then.
func (s *supervisor) bequeath(file *os.File, old int, why string) error {
	for noted := false; !noted || len(s.signals) > 0; noted = true {
		s.noteSignals()
		l := legacy{
			Protocol: protocol, Sockets: s.held.fds, Refused: s.held.refused, Hello: s.hello, OldExe: old, Stops: s.stops, Stop: s.stop,
			Hangup: s.hangup, Why: why,
		}
		if why == "" {
			l.Hello.Upgrades++
		} else {
			l.Hello.Upgrades--
		}
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		if err := file.Truncate(int64(len(text))); err != nil {
			return err
		}
		if _, err := file.WriteAt(text, 0); err != nil {
			return err
		}
	}
	return nil
}

// holdSignals blocks signals in this thread. Those that arrive during the exec wait in the kernel for the successor, unless another thread of Go takes one
// before the exec ends that thread: a fraction of a millisecond, in which one can still be lost.
func holdSignals() (release func() error, err error) {
	var old unix.Sigset_t
	set := handled()
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		return nil, err
	}
	return func() error { return unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }, nil
}

// noteSignals notes what has arrived while no child could be told.
func (s *supervisor) noteSignals() {
	for {
		select {
		case sig := <-s.signals:
			switch sig {
			case unix.SIGHUP:
				s.hangup = true
			case unix.SIGTERM, unix.SIGINT:
				s.stops++
				s.stop, _ = sig.(syscall.Signal)
			}
		default:
			return
		}
	}
}

// inherit sets whether descriptors survive an exec.
func inherit(fds []int, survive bool) error {
	flags := unix.FD_CLOEXEC
	if survive {
		flags = 0
	}
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags); err != nil {
			return fmt.Errorf("hand on descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// handled returns the set of signals that a supervisor handles.
func handled() (set unix.Sigset_t) {
	for _, sig := range supervisedSignals() {
		number, _ := sig.(syscall.Signal)
		set.Val[0] |= 1 << (number - 1)
	}
	return set
}

// supervisedSignals are the signals that a supervisor handles.
func supervisedSignals() []os.Signal {
	return []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR2}
}

// succeed takes over from a predecessor, if there was one.
func (s *supervisor) succeed() error {
	value := os.Getenv(successorEnv)
	if value == "" {
		return nil
	}
	fd, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%s=%q: want the number of a descriptor", successorEnv, value)
	}
	file := os.NewFile(uintptr(fd), "weir-keep")
	defer file.Close()
	l, err := readLegacy(file)
	if err != nil {
		return fmt.Errorf("%s=%q: %w; it is set by a supervisor only", successorEnv, value, err)
	}
	s.hello, s.held.refused, s.stops, s.stop, s.hangup, s.oldExe = l.Hello, l.Refused, l.Stops, l.Stop, l.Hangup, l.OldExe
	s.hello.Protocol, s.hello.Capacity = protocol, s.held.capacity
	if s.oldExe >= 0 {
		unix.CloseOnExec(s.oldExe)
	}
	for name, fd := range l.Sockets {
		unix.CloseOnExec(fd)
		s.held.fds[name] = fd
	}
	set := handled()
	if err := unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil); err != nil {
		return err
	}
	if l.Why != "" {
		s.log.Error("upgrade failed: the old binary is back", "why", l.Why)
	}
	return nil
}

func readLegacy(file *os.File) (l legacy, err error) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, 64<<20))
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	if l.Protocol != protocol {
		return l, fmt.Errorf("the binary before has protocol %d, this one %d", l.Protocol, protocol)
	}
	return l, nil
}

// commitNew commits to the new binary: the previous one is not started again from here on.
func (s *supervisor) commitNew() {
	if s.oldExe >= 0 {
		_ = unix.Close(s.oldExe)
		s.oldExe = -1
		s.log.Info("upgrade done: the new binary serves", "sockets", len(s.held.fds))
	}
}

// fallBack starts the previous binary again. If that fails, the new one continues.
func (s *supervisor) fallBack(why string) {
	old := s.oldExe
	s.oldExe = -1
	s.log.Error("upgrade failed: back to the old binary", "why", why)
	if err := s.become("/proc/self/fd/"+strconv.Itoa(old), why); err != nil {
		s.log.Error("back to the old binary", "error", err)
	}
	_ = unix.Close(old)
}
