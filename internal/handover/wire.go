package handover

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// protocol is the version of the messages and of the state passed by an exec. A successor with another version is
// refused.
const protocol = 1

// Messages between the supervisor and its child: a byte, then the body.
const (
	opStore = 'S' // child: a name, its descriptor
	opDrop  = 'D' // child: a name
	opReady = 'R' // child: it is ready
	opQuit  = 'Q' // child: it ends in order, with an intended exit code
	// opStopping: child: it received the termination signal and needs time to end.
	opStopping = 'P'
	opUpgrade  = 'U' // child: an upgrade was requested

	opHello    = 'H' // supervisor: JSON hello, the first message
	opSockets  = 'T' // supervisor: names, each after its length in a byte, with one descriptor each
	opBegin    = 'B' // supervisor: all sockets were sent
	opHandOver = 'O' // supervisor: end without dropping what is stored
	opRefused  = 'X' // supervisor: the upgrade is refused, and why
	opFull     = 'F' // supervisor: the name of a socket that it could not store
)

const (
	maxMessage  = 32 << 10
	perMessage  = 100 // descriptors; SCM_MAX_FD is 253
	sendTimeout = 50 * time.Millisecond
)

// wire is one end of the seqpacket pair.
type wire struct {
	conn *net.UnixConn
	mu   sync.Mutex // guards send
	out  []byte
	late bool // the last send found no space

	in, rights []byte // used by receive
}

// newPair creates both ends; the second is for a child process.
func newPair() (*wire, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "keep")
	w, err := newWire(fds[0])
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return w, theirs, nil
}

// newWire takes ownership of fd.
func newWire(fd int) (*wire, error) {
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "keep")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("descriptor %d is no Unix socket", fd)
	}
	return &wire{conn: unixConn}, nil
}

// send sends one message. It waits up to wait for space; if the last send timed out, it does not wait again.
func (w *wire) send(wait time.Duration, op byte, body []byte, fds ...int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(append(w.out[:0], op), body...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if w.late && wait == sendTimeout {
		wait = time.Millisecond
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	_, _, err := w.conn.WriteMsgUnix(w.out, rights, nil)
	w.late = errors.Is(err, os.ErrDeadlineExceeded)
	if w.late {
		return ErrLate
	}
	return err
}

// A wire to the supervisor is an fdStore.
func (w *wire) store(wait time.Duration, name string, fd int) error {
	return w.send(wait, opStore, []byte(name), fd)
}
func (w *wire) drop(name string) error    { return w.send(sendTimeout, opDrop, []byte(name)) }
func (w *wire) flush(time.Duration) error { return nil }
func (w *wire) ready() error              { return w.send(handOverTime, opReady, nil) }
func (w *wire) stopping() error           { return w.send(sendTimeout, opStopping, nil) }
func (w *wire) close()                    { _ = w.conn.Close() }

// message is a received message. The receiver owns the descriptors.
type message struct {
	op   byte
	body []byte
	fds  []int
	cut  bool // descriptors were lost, because this process may not open more
}

// receive waits for a message. Only one goroutine at a time may call it. io.EOF means that the other end is closed.
func (w *wire) receive() (message, error) {
	if w.in == nil {
		w.in, w.rights = make([]byte, maxMessage), make([]byte, unix.CmsgSpace(perMessage*4))
	}
	n, rn, flags, _, err := w.conn.ReadMsgUnix(w.in, w.rights)
	if err != nil {
		return message{}, err
	}
	fds := parseRights(w.rights[:rn])
	if n == 0 || flags&unix.MSG_TRUNC != 0 {
		closeAll(fds)
		return message{}, io.ErrUnexpectedEOF
	}
	return message{op: w.in[0], body: bytes.Clone(w.in[1:n]), fds: fds, cut: flags&unix.MSG_CTRUNC != 0}, nil
}

func parseRights(b []byte) (fds []int) {
	controls, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil
	}
	for _, c := range controls {
		got, err := unix.ParseUnixRights(&c)
		if err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// appendName appends a name after its length.
func appendName(out []byte, name string) []byte { return append(append(out, byte(len(name))), name...) }

// parseNames reads names written by appendName; it returns nil for anything else.
func parseNames(b []byte) (names []string) {
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || n > MaxName || len(b) < 1+n {
			return nil
		}
		names = append(names, string(b[1:1+n]))
		b = b[1+n:]
	}
	return names
}
