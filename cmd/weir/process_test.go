package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// runAsWeir in the environment makes the test binary behave as weir itself, so that tests run real processes of this code
// without building a second binary. All that the tests start has it.
const runAsWeir = "WEIR_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runAsWeir) != "" {
		hangups := catchHangups()
		tellStarted()
		netlabtest.EndWithTest() // a gateway's serving process outlives its supervisor
		os.Exit(run(hangups, os.Args[1:]))
	}
	if err := errors.Join(netlabtest.SideBySide(), netlabtest.AdoptChildren(), os.Setenv(runAsWeir, "1")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// takesSeconds is for a test that does: it runs beside others, and not at all with -short.
func takesSeconds(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
}

// ownProcess is takesSeconds in a process of its own, for what the test changes there or may find changed: its
// environment and limits, the user of threads, what is named after the process. It reports whether this is that process; in
// the other one, the test is over.
func ownProcess(t *testing.T) bool {
	t.Helper()
	const own = "WEIR_TEST_OWN_PROCESS"
	if os.Getenv(own) == t.Name() {
		return true
	}
	takesSeconds(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, runAsWeir+"=") }), own+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	switch passed := bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")); {
	case err == nil && bytes.Contains(out, []byte("--- SKIP: "+t.Name()+" ")):
		t.Skipf("%s", out)
	case err != nil || !passed:
		t.Fatalf("in a process of its own: %v\n%s", err, out)
	}
	return false
}

// startedFD in the environment is a descriptor on which a process says that it is in main, and will outlive a SIGHUP.
const startedFD = "WEIR_TEST_STARTED_FD"

func tellStarted() {
	if fd, err := strconv.Atoi(os.Getenv(startedFD)); err == nil {
		os.Unsetenv(startedFD) // children do not have it
		os.NewFile(uintptr(fd), "started").Close()
	}
}

// process is a weir that runs beside the test, reached through its admin socket.
type process struct {
	t      testing.TB
	name   string
	cmd    *exec.Cmd
	door   *client.Client
	socket string
	out    *lockedBuffer
	ended  chan struct{}
	err    error // of Wait; set before ended closes
}

// lockedBuffer keeps what a process writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startProcess runs weir with args and an admin socket until the test ends, and waits until it answers there.
func startProcess(t testing.TB, name string, args ...string) *process {
	t.Helper()
	return startBinary(t, os.Args[0], name, args...)
}

// startBinary is startProcess of another build of weir.
func startBinary(t testing.TB, binary, name string, args ...string) *process {
	t.Helper()
	return startBy(t, func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd.Start()
	}, binary, name, args...)
}

// startIn is startProcess in a network namespace, which kills it at its end.
func startIn(t testing.TB, host *netlab.Host, name string, args ...string) *process {
	t.Helper()
	return startBy(t, host.Start, os.Args[0], name, args...)
}

func startBy(t testing.TB, start func(*exec.Cmd) error, binary, name string, args ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") // t.TempDir may exceed what a socket's path can hold
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, socket: filepath.Join(dir, "s"), out: new(lockedBuffer), ended: make(chan struct{})}
	p.door = client.New("unix:"+p.socket, "")
	p.cmd = exec.Command(binary, append(args, "--admin", "unix:"+p.socket)...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop()
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.out)
		}
	})
	deadline := time.Now().Add(60 * time.Second)
	for {
		var status any
		err := p.door.Get(t.Context(), "/status", nil, &status)
		if err == nil {
			return p
		}
		select {
		case <-p.ended:
			t.Fatalf("%s ended: %v\n%s", name, p.err, p.out)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %v\n%s", name, err, p.out)
		}
	}
}

// stop interrupts the process and waits; it must end cleanly.
func (p *process) stop() {
	select {
	case <-p.ended:
		return
	default:
	}
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
		if p.err != nil {
			p.t.Errorf("%s: %v after an interrupt", p.name, p.err)
		}
	case <-time.After(60 * time.Second):
		p.cmd.Process.Kill()
		<-p.ended
		p.t.Errorf("%s did not end after an interrupt", p.name)
	}
}

// alive fails the test if the process has ended.
func (p *process) alive() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("%s ended: %v\n%s", p.name, p.err, p.out)
	default:
	}
}

// status asks for the status and decodes it.
func (p *process) status(into any) {
	p.t.Helper()
	if err := p.door.Get(p.t.Context(), "/status", nil, into); err != nil {
		p.t.Fatalf("status of %s: %v", p.name, err)
	}
}

// console runs one command of the NAT and returns its answer.
func (p *process) console(line string) string {
	p.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.socket)
	}}
	response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Post("http://localhost/console", "text/plain", strings.NewReader(line+"\n"))
	if err != nil {
		p.t.Fatalf("console %q: %v", line, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		p.t.Fatalf("console %q: %s, %v\n%s", line, response.Status, err, text)
	}
	return string(text)
}

// freeAddresses returns UDP addresses on loopback that nobody else takes while the test runs.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		addresses[i] = netlabtest.UDPAddress(t).String()
	}
	return addresses
}

// clusterArgs is the --dtls-cluster of own node i (from 0) among nodes with these addresses: public, management, public, ...
func clusterArgs(addresses []string, own int) string {
	var nodes []string
	for i := 0; 2*i < len(addresses); i++ {
		public := "---"
		if i == own {
			public = addresses[2*i]
		}
		nodes = append(nodes, fmt.Sprintf("%s;%s;%d", public, addresses[2*i+1], i+1))
	}
	return strings.Join(nodes, ",")
}
