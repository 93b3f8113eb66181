package handover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Environment variables of systemd (sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3)).
const (
	notifyEnv = "NOTIFY_SOCKET"
	pidEnv    = "LISTEN_PID"
	fdsEnv    = "LISTEN_FDS"
	namesEnv  = "LISTEN_FDNAMES"
	storeEnv  = "FDSTORE" // the size of the descriptor store; systemd 254 and later
)

const (
	firstListenFD = 3   // SD_LISTEN_FDS_START
	maxFDName     = 255 // bytes of a name in systemd's store
)

// systemd is systemd's descriptor store. A descriptor is replaced by a new one under the name's next generation, and
// only then the previous generation is removed: whenever the process ends, one of them is there.
type systemd struct {
	mu          sync.Mutex
	fd          int               // a datagram socket; -1: closed
	generations map[string]uint64 // of the stored descriptors
	stale       []string          // names in the store, of replaced descriptors that systemd still has to close
	late        bool              // the last message found no space
	timeout     time.Duration     // SO_SNDTIMEO
}

// notify sends one message of sd_notify(3), with a descriptor if fd is not negative.
func (s *systemd) notify(wait time.Duration, text string, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	if s.late && wait == sendTimeout {
		wait = time.Millisecond
	}
	if wait != s.timeout {
		timeout := unix.NsecToTimeval(int64(wait))
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
			return err
		}
		s.timeout = wait
	}
	err := unix.Sendmsg(s.fd, []byte(text), rights, nil, unix.MSG_NOSIGNAL)
	for errors.Is(err, unix.EINTR) {
		err = unix.Sendmsg(s.fd, []byte(text), rights, nil, unix.MSG_NOSIGNAL)
	}
	s.late = errors.Is(err, unix.EAGAIN)
	if s.late {
		return ErrLate
	}
	return err
}

func (s *systemd) store(wait time.Duration, name string, fd int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous, replaces := s.generations[name]
	fdName := encodeFDName(name, previous+1)
	if len(fdName) > maxFDName {
		return fmt.Errorf("name of %d bytes: systemd accepts %d", len(fdName), maxFDName)
	}
	// Without FDPOLL=0 systemd would close a socket whose error queue is not empty (EPOLLERR).
	if err := s.notify(wait, "FDSTORE=1\nFDPOLL=0\nFDNAME="+fdName, fd); err != nil {
		return err
	}
	s.generations[name] = previous + 1
	if replaces {
		s.stale = append(s.stale, encodeFDName(name, previous))
	}
	if err := s.flushLocked(wait); !errors.Is(err, ErrLate) {
		return err
	}
	return nil // the new one is stored
}

// flush makes systemd close the descriptors that were replaced.
func (s *systemd) flush(wait time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushLocked(wait)
}

func (s *systemd) flushLocked(wait time.Duration) error {
	for len(s.stale) > 0 {
		if err := s.remove(wait, s.stale[0]); err != nil {
			return err
		}
		s.stale = s.stale[1:]
	}
	return nil
}

func (s *systemd) remove(wait time.Duration, fdName string) error {
	return s.notify(wait, "FDSTOREREMOVE=1\nFDNAME="+fdName, -1)
}

func (s *systemd) drop(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation, stored := s.generations[name]
	if !stored {
		return nil
	}
	if err := s.remove(sendTimeout, encodeFDName(name, generation)); err != nil {
		return err
	}
	delete(s.generations, name)
	return nil
}

func (s *systemd) say(wait time.Duration, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notify(wait, text, -1)
}

// againAfter is when an answer to the watchdog is tried again.
const againAfter = 20 * time.Millisecond

// answer answers the watchdog. Systemd's queue is short, and full while it takes a burst of descriptors: an answer that finds no space is tried
// again until it is taken, because systemd kills a process of which it has heard nothing. The workers, which store descriptors, do not wait for it.
func (s *systemd) answer(ctx context.Context) {
	for errors.Is(s.say(sendTimeout, "WATCHDOG=1"), ErrLate) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(againAfter):
		}
	}
}

func (s *systemd) ready() error    { return s.say(handOverTime, "READY=1") }
func (s *systemd) stopping() error { return s.say(sendTimeout, "STOPPING=1") }

func (s *systemd) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = unix.Close(s.fd)
	s.fd = -1
}

// joinSystemd connects to systemd, if it started this process as a service of Type=notify, and takes over what its
// store holds.
func (k *Store) joinSystemd() error {
	path := os.Getenv(notifyEnv)
	if path == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket to systemd: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("%s=%q: %w; it is set by systemd only", notifyEnv, path, err)
	}
	s := &systemd{fd: fd, generations: map[string]uint64{}}
	k.fds, k.systemd, k.hello.Capacity = s, s, MaxSockets
	if size, err := strconv.Atoi(os.Getenv(storeEnv)); err == nil {
		k.hello.Capacity = min(size, MaxSockets)
	}
	if err := k.listenFDs(s, firstListenFD); err != nil {
		return err
	}
	k.signals = make(chan os.Signal, 1)
	signal.Notify(k.signals, unix.SIGUSR2)
	return nil
}

// listenFDs takes over the descriptors that systemd passed (sd_listen_fds(3)). Those of socket units have other names
// and are left alone.
func (k *Store) listenFDs(s *systemd, first int) error {
	if os.Getenv(pidEnv) != strconv.Itoa(os.Getpid()) {
		return nil
	}
	count, err := strconv.Atoi(os.Getenv(fdsEnv))
	names := strings.Split(os.Getenv(namesEnv), ":")
	if err != nil || count < 0 || count > MaxSockets || count > 0 && len(names) != count {
		return fmt.Errorf("%s=%q with %d names in %s: want as many; they are set by systemd only", fdsEnv, os.Getenv(fdsEnv), len(names), namesEnv)
	}
	for _, name := range []string{pidEnv, fdsEnv, namesEnv} {
		_ = os.Unsetenv(name) // they are not for children
	}
	for i := range count {
		fd := first + i
		unix.CloseOnExec(fd)
		name, generation, ok := decodeFDName(names[i])
		if !ok {
			continue
		}
		if known := s.generations[name]; known != 0 { // the previous process ended while it replaced one
			stale, staleFD := generation, fd
			if known < generation {
				stale, staleFD = known, k.taken[name]
				k.taken[name], s.generations[name] = fd, generation
			}
			_ = unix.Close(staleFD)
			s.stale = append(s.stale, encodeFDName(name, stale))
			continue
		}
		k.taken[name], s.generations[name] = fd, generation
		k.stored[name] = struct{}{}
	}
	return s.flush(handOverTime)
}

// followSystemd waits for the signal to hand over: RestartKillSignal=SIGUSR2 of the unit.
func (k *Store) followSystemd(signals <-chan os.Signal) {
	defer close(k.ended)
	if _, ok := <-signals; ok {
		k.log.Info("systemd restarts this process; its sockets and records are kept", "sockets", k.Stats().Sockets)
		close(k.handOver)
	}
}

// Watch answers systemd's watchdog (WatchdogSec= of the unit) until ctx ends, twice as often as required, while alive
// returns: if it no longer does, systemd kills the process and starts another one. Without a watchdog it returns at
// once.
func (k *Store) Watch(ctx context.Context, alive func()) {
	period, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if k.systemd == nil || err != nil || period <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return
	}
	ticker := time.NewTicker(time.Duration(period) * time.Microsecond / 2)
	defer ticker.Stop()
	for {
		alive()
		k.systemd.answer(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// encodeFDName returns the name in systemd's store: printable ASCII without a colon.
func encodeFDName(name string, generation uint64) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || c == ':' || c == '%' || c == '#' {
			fmt.Fprintf(&b, "%%%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + "#" + strconv.FormatUint(generation, 10)
}

func decodeFDName(fdName string) (name string, generation uint64, ok bool) {
	text, number, found := strings.Cut(fdName, "#")
	generation, err := strconv.ParseUint(number, 10, 64)
	if !found || err != nil || generation == 0 {
		return "", 0, false
	}
	var b []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b = append(b, text[i])
			continue
		}
		if i+3 > len(text) {
			return "", 0, false
		}
		c, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
		if err != nil {
			return "", 0, false
		}
		b = append(b, byte(c))
		i += 2
	}
	return string(b), generation, len(b) > 0
}
