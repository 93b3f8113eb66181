package handover

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// roleEnv makes the test binary a supervisor, and its children socket holders.
const (
	roleEnv  = "KEEP_TEST"
	stateEnv = "KEEP_TEST_STATE"
	// stableEnv is Config.StableAfter; stuckEnv is of a child that takes no signal to end: "ready", or "starting" for one
	// that does not even come to serve.
	stableEnv = "KEEP_TEST_SETTLED"
	stuckEnv  = "KEEP_TEST_STUCK"
	// holdEnv is Config.HoldFor.
	holdEnv = "KEEP_TEST_HOLD"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		if err := netlabtest.AdoptChildren(); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	netlabtest.EndWithTest() // the child of a supervisor that was killed goes on
	os.Exit(runRole())
}

// ownVersion is the last line of a binary that tests append to copies of it.
func ownVersion() string {
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	end := string(text[len(text)-40:])
	if _, version, ok := strings.Cut(end, "\nversion="); ok {
		return version
	}
	return "original"
}

func runRole() int {
	if Interim() {
		return HoldInterim()
	}
	if Probing() {
		if strings.HasPrefix(ownVersion(), "refuses") {
			fmt.Fprintln(os.Stderr, "I would rather not")
			return 3
		}
		fmt.Println(Protocol())
		return 0
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if Supervised() {
		code := hold(log)
		Leaving()
		return code
	}
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	stable, _ := time.ParseDuration(os.Getenv(stableEnv))
	stable = max(stable, 1) // else every crash after Ready is the first of a row
	holdFor, _ := time.ParseDuration(os.Getenv(holdEnv))
	code, err := Supervise(Config{Path: path, Args: os.Args, Log: log, StableAfter: stable, MaxWait: 10 * time.Millisecond, State: os.Getenv(stateEnv), HoldFor: holdFor})
	if err != nil {
		log.Error("supervise", "error", err)
	}
	return code
}

// hold is a child: a UDP socket at the address of the first argument, or the one kept, answers each datagram with
// who it is and how many its socket got, which is a record.
func hold(log *slog.Logger) int {
	k, err := Open(Options{State: os.Getenv(stateEnv), Log: log})
	if err != nil {
		log.Error("open", "error", err)
		return 4
	}
	defer k.Close()
	version := ownVersion()
	if strings.HasPrefix(version, "dies") {
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if strings.HasPrefix(version, "fails") {
		return 5
	}
	h := &holder{keep: k, version: version}
	k.Records(func(id uint64, record []byte) bool {
		h.count = binary.LittleEndian.Uint64(record)
		return true
	})
	if h.count == poisoned && len(k.Names()) > 0 {
		panic("poisoned")
	}
	if os.Getenv(stuckEnv) == "starting" {
		fmt.Fprintln(os.Stderr, "stuck")
		select {}
	}
	if err := h.open(os.Args[1]); err != nil {
		log.Error("open the socket", "error", err)
		return 6
	}
	return h.run()
}

// poisoned is the count that a child dies of when it finds it: no test counts that far, however long it waits for an upgrade.
const poisoned = 1 << 40

type holder struct {
	keep    *Store
	version string
	count   uint64
	conn    *net.UDPConn
	leaving bool
	hangups int
}

func (h *holder) open(address string) error {
	if fd, ok := h.keep.Take("echo"); ok {
		file := os.NewFile(uintptr(fd), "echo")
		defer file.Close()
		conn, err := net.FilePacketConn(file)
		if err != nil {
			return err
		}
		h.conn, _ = conn.(*net.UDPConn)
		return nil
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		return err
	}
	h.conn = conn
	return control(conn, func(fd int) error { return h.keep.Hold("echo", fd) })
}

func control(conn *net.UDPConn, f func(fd int) error) (err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return combine(raw.Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

func combine(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (h *holder) run() int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP)
	var mu sync.Mutex
	code := make(chan int, 2)
	go func() {
		for sig := range signals {
			mu.Lock()
			if sig == unix.SIGHUP {
				h.hangups++
			} else if os.Getenv(stuckEnv) == "" {
				h.leaving = true
				code <- 7
				h.conn.SetReadDeadline(time.Now())
			}
			mu.Unlock()
		}
	}()
	go func() {
		<-h.keep.HandOver()
		code <- 0
		h.conn.SetReadDeadline(time.Now())
	}()
	h.keep.Ready()
	buffer := make([]byte, 2000)
	for {
		n, from, err := h.conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return <-code
		}
		switch text := string(buffer[:n]); {
		case text == "poison":
			h.count = poisoned - 1
		case text == "panic":
			panic("as requested")
		case text == "upgrade":
			go func() {
				if err := h.keep.RequestUpgrade(); err != nil {
					fmt.Fprintln(os.Stderr, "refused:", err)
				}
			}()
		case strings.HasPrefix(text, "sockets "):
			many, _ := strconv.Atoi(text[8:])
			for i := range many {
				_ = control(h.conn, func(fd int) error { return h.keep.Hold(fmt.Sprint("more/", i), fd) })
			}
		}
		h.count++
		h.keep.Put(1, binary.LittleEndian.AppendUint64(nil, h.count))
		s := h.keep.Stats()
		mu.Lock()
		hangups := h.hangups
		mu.Unlock()
		h.conn.WriteToUDPAddrPort(fmt.Appendf(nil, "%s pid=%d count=%d supervisor=%s/%d starts=%d upgrades=%d sockets=%d refused=%d hangups=%d version=%s",
			buffer[:n], os.Getpid(), h.count, s.Supervisor, s.PID, s.Starts, s.Upgrades, s.Sockets, s.Refused, hangups, h.version), from)
	}
}

// supervised is a supervisor that runs during the test.
type supervised struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	conn    *net.UDPConn
	output  *lines
	ended   chan struct{}
}

// lines keeps what a process wrote and lets a test wait for a piece of it.
type lines struct {
	mu   sync.Mutex
	cond *sync.Cond
	text string
	end  bool
}

func (l *lines) copy(r io.Reader) {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		l.mu.Lock()
		l.text += scanner.Text() + "\n"
		l.cond.Broadcast()
		l.mu.Unlock()
	}
	l.mu.Lock()
	l.end = true
	l.cond.Broadcast()
	l.mu.Unlock()
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// has waits until a piece was written, or fails when the process ended without it, or after two minutes.
func (l *lines) has(t *testing.T, piece string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	defer time.AfterFunc(2*time.Minute, l.cond.Broadcast).Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.text, piece) {
		if l.end || time.Now().After(deadline) {
			t.Fatalf("it ended, or went on, without saying %q:\n%s", piece, l.text)
		}
		l.cond.Wait()
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// start runs a supervisor of the binary at path.
func start(t *testing.T, path, address string, env ...string) *supervised {
	t.Helper()
	return startCommand(t, exec.Command(path, address), address, env...)
}

func startCommand(t *testing.T, cmd *exec.Cmd, address string, env ...string) *supervised {
	t.Helper()
	s := &supervised{t: t, address: address, output: &lines{}, ended: make(chan struct{})}
	s.output.cond = sync.NewCond(&s.output.mu)
	s.cmd = cmd
	s.cmd.Env = append(append(os.Environ(), roleEnv+"=1"), env...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = w, w
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go s.output.copy(r)
	go func() {
		s.cmd.Wait()
		close(s.ended)
	}()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(address)))
	if err != nil {
		t.Fatal(err)
	}
	s.conn = conn
	t.Cleanup(func() {
		conn.Close()
		s.cmd.Process.Signal(unix.SIGTERM)
		s.cmd.Process.Signal(unix.SIGTERM)
		<-s.ended
		r.Close()
		if t.Failed() {
			t.Logf("the supervisor said:\n%s", s.output)
		}
	})
	return s
}

// answer is what a child said of itself.
type answer struct {
	pid, count, supervisorPID, starts, upgrades, sockets, refused, hangups int
	supervisor, version                                                    string
}

// request sends a text until a child answers it. A datagram may come while no one has the socket yet.
func (s *supervised) request(text string) (a answer) {
	s.t.Helper()
	return s.read(text, true)
}

// read waits for the answer to the text; again sends it (again) every second.
func (s *supervised) read(text string, again bool) (a answer) {
	s.t.Helper()
	buffer := make([]byte, 2000)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if again {
			_, _ = s.conn.Write([]byte(text)) // refused: no one yet
		}
		s.conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := s.conn.Read(buffer)
		if err != nil {
			select {
			case <-s.ended:
				s.t.Fatalf("the supervisor ended: %v", s.cmd.ProcessState)
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		rest, ok := strings.CutPrefix(string(buffer[:n]), text+" pid=")
		if !ok {
			continue // an answer to a repetition
		}
		if _, err := fmt.Sscanf(strings.ReplaceAll("pid="+rest, "/", " "), "pid=%d count=%d supervisor=%s %d starts=%d upgrades=%d sockets=%d refused=%d hangups=%d version=%s",
			&a.pid, &a.count, &a.supervisor, &a.supervisorPID, &a.starts, &a.upgrades, &a.sockets, &a.refused, &a.hangups, &a.version); err != nil {
			s.t.Fatalf("%q: %v", buffer[:n], err)
		}
		return a
	}
	s.t.Fatalf("no answer to %q", text)
	return a
}

// copyBinary copies the test binary to a path and makes it another version.
func copyBinary(t *testing.T, path, version string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if version != "" {
		text = append(text, (strings.Repeat(" ", 40) + "\nversion=" + version)...)
	}
	next := path + ".next"
	if err := os.WriteFile(next, text, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func inTemp(t *testing.T) string { return filepath.Join(t.TempDir(), "holder") }
