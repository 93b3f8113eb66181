package clitest

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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// RunAsWeir in the environment makes the test binary behave as weir itself, so that tests run real processes of this code
// without building a second binary. All that the tests start has it.
const RunAsWeir = "WEIR_TEST_RUN"

// tested are the families of the test binary: those that its tests run.
var tested []cli.Family

// Main is what TestMain of a package that tests commands does. The test binary has no commands but those of the families.
func Main(m *testing.M, families ...cli.Family) {
	if os.Getenv(RunAsWeir) != "" {
		hangups := cli.CatchHangups()
		reportStarted()
		netlabtest.EndWithTest() // a gateway's serving process outlives its supervisor
		os.Exit(cli.Run(hangups, os.Args[1:], families))
	}
	tested = families
	if err := errors.Join(netlabtest.SideBySide(), netlabtest.AdoptChildren(), os.Setenv(RunAsWeir, "1")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TakesSeconds marks a test that takes seconds: it runs in parallel with others, and not at all with -short.
func TakesSeconds(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
}

// OwnProcess is TakesSeconds in a process of its own, for what the test changes there or may find changed: its
// environment and limits, the user of threads, what is named after the process. It reports whether this is that process; in
// the other one, the test is over.
func OwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownProcess) == t.Name() {
		return true
	}
	TakesSeconds(t)
	runOwn(t)
	return false
}

// OwnProcessFirst is OwnProcess of a test that keeps the processors busy: it does not run in parallel, so go test runs it before those of the package that do.
func OwnProcessFirst(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownProcess) == t.Name() {
		return true
	}
	if testing.Short() {
		t.Skip("takes seconds")
	}
	runOwn(t)
	return false
}

// ownProcess in the environment names the test that a process is for.
const ownProcess = "WEIR_TEST_OWN_PROCESS"

func runOwn(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, RunAsWeir+"=") }), ownProcess+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	switch passed := bytes.Contains(out, []byte("--- PASS: "+t.Name()+" ")); {
	case err == nil && bytes.Contains(out, []byte("--- SKIP: "+t.Name()+" ")):
		t.Skipf("%s", out)
	case err != nil || !passed:
		t.Fatalf("in a process of its own: %v\n%s", err, out)
	}
}

// StartedFD in the environment is a descriptor on which a process says that it is in main, and will outlive a SIGHUP.
const StartedFD = "WEIR_TEST_STARTED_FD"

func reportStarted() {
	if fd, err := strconv.Atoi(os.Getenv(StartedFD)); err == nil {
		os.Unsetenv(StartedFD) // children do not have it
		os.NewFile(uintptr(fd), "started").Close()
	}
}

// Process is a weir process that a test has started; the test reaches it through its admin socket.
type Process struct {
	T      testing.TB
	Name   string
	Cmd    *exec.Cmd
	Admin  *client.Client
	Socket string
	Out    *LockedBuffer
	Ended  chan struct{}
	Err    error // of Wait; set before ended closes
	// Signalled: the process has had a signal to end, so that it may die of Stop's interrupt.
	Signalled bool
}

// LockedBuffer keeps what a process writes.
type LockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *LockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *LockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Start runs weir with args and an admin socket until the test ends, and waits until it answers there.
func Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return StartBinary(t, os.Args[0], name, args...)
}

// StartBinary is Start of another build of weir.
func StartBinary(t testing.TB, binary, name string, args ...string) *Process {
	t.Helper()
	return StartBy(t, StartChild, binary, name, args...)
}

// StartChild starts a process that the kernel kills when this one ends.
func StartChild(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}

// starter runs functions on one thread that never ends. The death signal of a process comes when the thread ends that has started
// it, and a thread that has entered a network namespace ends with its goroutine: it may have started a process before.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// StartIn is Start in a network namespace, which kills it at its end.
func StartIn(t testing.TB, host *netlab.Host, name string, args ...string) *Process {
	t.Helper()
	return StartBy(t, host.Start, os.Args[0], name, args...)
}

func StartBy(t testing.TB, start func(*exec.Cmd) error, binary, name string, args ...string) *Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") // t.TempDir may exceed what a socket's path can hold
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{T: t, Name: name, Socket: filepath.Join(dir, "s"), Out: new(LockedBuffer), Ended: make(chan struct{})}
	p.Admin = client.New("unix:"+p.Socket, "")
	p.Cmd = exec.Command(binary, append(args, "--admin", "unix:"+p.Socket)...)
	p.Cmd.Stdout, p.Cmd.Stderr = p.Out, p.Out
	p.Cmd.WaitDelay = 10 * time.Second // a serving process outlives its supervisor, and has the output too
	if err := start(p.Cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.Err = p.Cmd.Wait()
		close(p.Ended)
	}()
	t.Cleanup(func() {
		p.Stop()
		os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, p.Out)
		}
	})
	deadline := time.Now().Add(60 * time.Second)
	for {
		var status any
		err := p.Admin.Get(t.Context(), "/status", nil, &status)
		if err == nil {
			return p
		}
		select {
		case <-p.Ended:
			t.Fatalf("%s ended: %v\n%s", name, p.Err, p.Out)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer: %v\n%s", name, err, p.Out)
		}
	}
}

// Stop interrupts the process and waits; it must end cleanly.
func (p *Process) Stop() {
	select {
	case <-p.Ended:
		return
	default:
	}
	p.Cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.Ended:
		if state, ok := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); ok && p.Signalled && state.Signal() == syscall.SIGINT {
			return
		}
		if p.Err != nil {
			p.T.Errorf("%s: %v after an interrupt", p.Name, p.Err)
		}
	case <-time.After(60 * time.Second):
		var serving struct{ PID int }
		_ = p.Admin.Get(context.Background(), "/status", nil, &serving) // nothing may serve
		p.Cmd.Process.Kill()
		if serving.PID > 0 && serving.PID != p.Cmd.Process.Pid {
			syscall.Kill(serving.PID, syscall.SIGKILL)
		}
		<-p.Ended
		p.T.Errorf("%s did not end after an interrupt", p.Name)
	}
}

// Alive fails the test if the process has ended.
func (p *Process) Alive() {
	p.T.Helper()
	select {
	case <-p.Ended:
		p.T.Fatalf("%s ended: %v\n%s", p.Name, p.Err, p.Out)
	default:
	}
}

// Status requests the status and decodes it.
func (p *Process) Status(into any) {
	p.T.Helper()
	if err := p.Admin.Get(p.T.Context(), "/status", nil, into); err != nil {
		p.T.Fatalf("status of %s: %v", p.Name, err)
	}
}

// Console runs one command of the NAT and returns its answer.
func (p *Process) Console(line string) string {
	p.T.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", p.Socket)
	}}
	response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Post("http://localhost/console", "text/plain", strings.NewReader(line+"\n"))
	if err != nil {
		p.T.Fatalf("console %q: %v", line, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		p.T.Fatalf("console %q: %s, %v\n%s", line, response.Status, err, text)
	}
	return string(text)
}

// CPUTime is what a process that has ended and those it has waited for have spent. Shown in logs, it says which test is expensive.
func CPUTime(cmd *exec.Cmd) time.Duration {
	if cmd.ProcessState == nil {
		return 0
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(10 * time.Millisecond)
}

// FreeAddresses returns UDP addresses on loopback that no other test takes while this one runs.
func FreeAddresses(t testing.TB, n int) []string {
	t.Helper()
	addresses := make([]string, n)
	for i := range addresses {
		addresses[i] = netlabtest.UDPAddress(t).String()
	}
	return addresses
}

// ClusterArgs is the --dtls-cluster of own node i (from 0) among nodes with these addresses: public, management, public, ...
func ClusterArgs(addresses []string, own int) string {
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
