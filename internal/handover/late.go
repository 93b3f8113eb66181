package handover

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxWaiting    = 4096                  // sockets that wait, each with a descriptor of its own
	retryInterval = 20 * time.Millisecond // between two attempts to pass them on
	retryTimeout  = time.Millisecond      // of an attempt; the data path may wait for the lock meanwhile
	closeTimeout  = 5 * time.Second       // of the attempt when the process ends
)

// dropped is the value of Store.waiting for a name that is to be dropped.
const dropped = -1

// A supervisor or systemd that gets no processor for a while does not read, and a notification socket of systemd has
// space for ten messages. What found no space waits here as a duplicate, and a timer passes it on. Until then it does
// not outlive the process; Stats.Waiting counts it.

// holdLocked passes fd on, or makes it wait.
func (k *Store) holdLocked(name string, fd int) error {
	err := k.passOnLocked(retryTimeout)
	if err == nil {
		err = k.fds.store(sendTimeout, name, fd)
	}
	if !errors.Is(err, ErrLate) {
		return err
	}
	if _, replaces := k.waiting[name]; k.closed || len(k.waiting) >= maxWaiting && !replaces {
		return ErrLate
	}
	duplicate, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	k.waitLocked(name, duplicate)
	return nil
}

// waitLocked makes a duplicate wait to be stored, or a name wait to be dropped.
func (k *Store) waitLocked(name string, fd int) {
	k.forgetLocked(name)
	k.waiting[name] = fd
	k.retryLaterLocked()
}

// forgetLocked ends the wait of a name.
func (k *Store) forgetLocked(name string) {
	if fd, waits := k.waiting[name]; waits && fd != dropped {
		_ = unix.Close(fd)
	}
	delete(k.waiting, name)
}

func (k *Store) retryLaterLocked() {
	if k.retry == nil {
		k.retry = time.AfterFunc(retryInterval, func() {
			k.socketsMu.Lock()
			defer k.socketsMu.Unlock()
			k.retry = nil
			if !k.closed && k.passOnLocked(retryTimeout) != nil {
				k.retryLaterLocked()
			}
		})
	}
}

// passOnLocked passes on what waits; an error means that some still waits. After the end of the supervisor nothing waits.
func (k *Store) passOnLocked(wait time.Duration) error {
	for name, fd := range k.waiting {
		if k.alone.Load() {
			k.forgetLocked(name)
			continue
		}
		var err error
		if fd == dropped {
			err = k.fds.drop(name)
		} else {
			err = k.fds.store(wait, name, fd)
		}
		if errors.Is(err, ErrLate) {
			return err
		}
		k.forgetLocked(name)
		switch {
		case err != nil:
			k.refuseLocked(name, err)
		case fd == dropped:
			delete(k.stored, name)
		default:
			k.acceptLocked(name)
		}
	}
	if k.alone.Load() {
		return nil
	}
	return k.fds.flush(wait)
}

// closeWaiting makes a last attempt when the process ends.
func (k *Store) closeWaiting() {
	k.socketsMu.Lock()
	defer k.socketsMu.Unlock()
	if k.closed {
		return
	}
	k.closed = true
	if k.retry != nil {
		k.retry.Stop()
	}
	if err := k.passOnLocked(closeTimeout); err != nil && len(k.waiting) > 0 {
		k.log.Warn("sockets end with this process", "event", "sockets_not_handed_over", "sockets", len(k.waiting), "error", err)
	}
	for name := range k.waiting {
		k.forgetLocked(name)
	}
}
