package handover

import (
	"math"

	"golang.org/x/sys/unix"
)

// spareFiles is how many descriptors of its file limit a supervisor reserves for itself.
const spareFiles = 64

// held is the sockets that a supervisor holds, by name.
type held struct {
	fds      map[string]int
	capacity int
	refused  uint64
}

func newHeld() *held { return &held{fds: map[string]int{}, capacity: capacity()} }

// capacity returns how many sockets the file limit lets a supervisor hold.
func capacity() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return MaxSockets
	}
	return max(min(MaxSockets, int(limit.Cur)-spareFiles), 0)
}

// store takes over m's descriptor and replaces an earlier one of that name. It returns whether there was space.
func (h *held) store(m message) bool {
	name := string(m.body)
	old, replaces := h.fds[name]
	if len(m.fds) != 1 || name == "" || len(name) > MaxName || !replaces && len(h.fds) >= h.capacity {
		closeAll(m.fds)
		h.refused++
		return false
	}
	if replaces {
		_ = unix.Close(old)
	}
	h.fds[name] = m.fds[0]
	return true
}

func (h *held) drop(name string) {
	if fd, ok := h.fds[name]; ok {
		_ = unix.Close(fd)
		delete(h.fds, name)
	}
}

// clear closes all descriptors.
func (h *held) clear() {
	for name := range h.fds {
		h.drop(name)
	}
}

// sendAll passes every socket to a child, perMessage sockets at a time.
func (h *held) sendAll(w *wire) error {
	var names []byte
	var fds []int
	flush := func() error {
		if len(fds) == 0 {
			return nil
		}
		err := w.send(handOverTime, opSockets, names, fds...)
		names, fds = names[:0], fds[:0]
		return err
	}
	for name, fd := range h.fds {
		names, fds = appendName(names, name), append(fds, fd)
		if len(fds) == perMessage {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return w.send(handOverTime, opBegin, nil)
}
