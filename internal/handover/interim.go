package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A server with a state directory that ends in order leaves its sockets to an interim process, which listens at socketsFile in that
// directory, gives them to the next server of the directory, and ends. If none comes within Config.HoldFor, the sockets end with it.
//
//	supervisor ── Hold, one pair ──► interim process ── opHello, opSockets…, opBegin ──► next supervisor
const (
	interimEnv  = "WEIR_KEEP_INTERIM" // of an interim process: its end of the socket pair
	socketsFile = "sockets"
	// interimTime is for an interim process to start, and to take the sockets.
	interimTime = 2 * time.Second
)

// interim is the first message to an interim process, and of one.
type interim struct {
	Protocol int           `json:"protocol"`
	State    string        `json:"state"`
	For      time.Duration `json:"for_ns"`
	Network  uint64        `json:"network"` // namespace of the sockets
}

// Interim reports whether this process was started to hold sockets between two servers: call HoldInterim and exit.
func Interim() bool { return os.Getenv(interimEnv) != "" }

// leaveSockets passes the sockets of a server that ended in order to an interim process. If that fails, they end with this process.
func (s *supervisor) leaveSockets() {
	if s.config.State == "" || s.config.HoldFor <= 0 || s.stops != 1 || len(s.held.fds) == 0 || ofSystemd() {
		return
	}
	if err := s.startInterim(); err != nil {
		s.log.Warn("the sockets end with this process; what clients send before the next one serves is lost", "error", err)
		return
	}
	s.log.Info("the sockets stay open for the next process with this state directory", "for", s.config.HoldFor, "sockets", len(s.held.fds))
}

// takeSockets takes over the sockets that the server before has left.
func (s *supervisor) takeSockets() {
	if s.config.State == "" || len(s.held.fds) > 0 {
		return
	}
	held, err := takeInterim(s.config.State)
	if err != nil {
		s.log.Warn("the sockets of the server before cannot be taken over", "error", err)
	}
	if s.held = held; len(held.fds) > 0 {
		s.hello.Last = "termination"
		s.log.Info("sockets of the server before are taken over", "sockets", len(held.fds))
	}
}

// ofSystemd reports whether this is the main process of a service: systemd starts the next one when all of its processes have ended.
func ofSystemd() bool {
	return os.Getenv("NOTIFY_SOCKET") != "" || os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

func (s *supervisor) startInterim() error {
	state, err := filepath.Abs(s.config.State)
	if err != nil {
		return err
	}
	w, theirs, err := newPair()
	if err != nil {
		return err
	}
	defer w.conn.Close()
	defer theirs.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{s.config.Args[0], "holds", "sockets"}, Dir: "/", Env: environment(interimEnv + "=3"), ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a process that holds the sockets: %w", err)
	}
	_ = theirs.Close()
	if err := s.handToInterim(w, interim{Protocol: protocol, State: state, For: s.config.HoldFor, Network: networkNamespace()}); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("leave the sockets to a process that holds them: %w", err)
	}
	return cmd.Process.Release()
}

func (s *supervisor) handToInterim(w *wire, i interim) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	if err := w.conn.SetReadDeadline(time.Now().Add(interimTime)); err != nil {
		return err
	}
	if err := w.send(interimTime, opHello, text); err != nil {
		return err
	}
	if err := s.held.sendAll(w); err != nil {
		return err
	}
	switch m, err := w.receive(); {
	case err != nil:
		return err
	case m.op != opReady:
		return errors.New(string(m.body))
	}
	return nil
}

// HoldInterim is the interim process. It returns its exit code.
func HoldInterim() (code int) {
	if err := holdInterim(); err != nil {
		return 1
	}
	return 0
}

func holdInterim() error {
	fd, err := strconv.Atoi(os.Getenv(interimEnv))
	if err != nil {
		return err
	}
	w, err := newWire(fd)
	if err != nil {
		return err
	}
	i, sockets, err := receiveInterim(w)
	if err != nil {
		return err
	}
	unix.Umask(0o177) // only the owner of the socket may connect
	listener, err := listenAt(i.State)
	if err != nil {
		_ = w.send(interimTime, opRefused, []byte(err.Error()))
		return err
	}
	defer listener.Close()
	if err := w.send(interimTime, opReady, nil); err != nil {
		return err
	}
	w.close()
	return i.give(listener, sockets)
}

// give waits for the next server and passes the sockets to it.
func (i *interim) give(listener *net.UnixListener, sockets *held) error {
	end := time.Now().Add(i.For)
	if err := listener.SetDeadline(end); err != nil {
		return err
	}
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		to := &wire{conn: conn}
		if !ownUser(conn) {
			to.close()
			continue
		}
		text, err := json.Marshal(i)
		if err == nil {
			err = to.send(interimTime, opHello, text)
		}
		if err == nil {
			err = sockets.sendAll(to)
		}
		to.close()
		return err
	}
}

// receiveInterim receives the first message and all sockets.
func receiveInterim(w *wire) (i interim, sockets *held, err error) {
	sockets = newHeld()
	if err := w.conn.SetReadDeadline(time.Now().Add(interimTime)); err != nil {
		return i, nil, err
	}
	for {
		m, err := w.receive()
		if err != nil {
			sockets.clear()
			return i, nil, err
		}
		switch m.op {
		case opHello:
			if err := json.Unmarshal(m.body, &i); err != nil || i.Protocol != protocol {
				sockets.clear()
				return i, nil, fmt.Errorf("the process before has protocol %d, this binary %d", i.Protocol, protocol)
			}
		case opSockets:
			sockets.receive(m)
		case opBegin:
			return i, sockets, nil
		default:
			closeAll(m.fds)
		}
	}
}

// receive takes over the sockets of a message.
func (h *held) receive(m message) {
	names := parseNames(m.body)
	if len(names) != len(m.fds) {
		closeAll(m.fds)
		h.refused += uint64(len(names))
		return
	}
	for i, name := range names {
		h.store(message{body: []byte(name), fds: m.fds[i : i+1]})
	}
}

// takeInterim takes what the server before has left to an interim process. It returns none if there is no such process, or if that is
// one of another network namespace.
func takeInterim(state string) (*held, error) {
	conn, err := dialAt(state)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return newHeld(), nil
	}
	if err != nil {
		return newHeld(), err
	}
	w := &wire{conn: conn}
	defer w.close()
	if !ownUser(conn) {
		return newHeld(), errors.New("a process of another user listens there")
	}
	i, sockets, err := receiveInterim(w)
	if err != nil {
		return newHeld(), err
	}
	if i.Network != networkNamespace() {
		sockets.clear()
	}
	return sockets, nil
}

// listenAt listens in a directory, by its descriptor: the path of a Unix socket has at most 107 bytes.
func listenAt(dir string) (*net.UnixListener, error) {
	folder, path, err := inDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // a successor's may be there
	return listener, nil
}

func dialAt(dir string) (*net.UnixConn, error) {
	folder, path, err := inDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: path})
}

func inDirectory(dir string) (folder *os.File, path string, err error) {
	folder, err = os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, "", err
	}
	return folder, fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), socketsFile), nil
}

// ownUser reports whether the other end is a process of this user.
func ownUser(conn *net.UnixConn) (own bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		own = err == nil && int(peer.Uid) == os.Geteuid()
	})
	return own
}

// networkNamespace is the number of this process's network namespace.
func networkNamespace() uint64 {
	var info unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &info); err != nil {
		return 0
	}
	return info.Ino
}
