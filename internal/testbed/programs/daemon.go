package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// Daemon is one process under measurement, reached through its admin socket. Its methods may be called from any goroutine.
type Daemon struct {
	name  string
	admin string
	cmd   *exec.Cmd
	http  *http.Client
	log   LastLines
	ended chan struct{}
	// interrupted says whether the run has been ended: then nothing is worth waiting for.
	interrupted func() bool
}

// ReadyTimeout bounds the wait for a program to be at work.
const ReadyTimeout = 60 * time.Second

const (
	daemonStop = 20 * time.Second
	logBytes   = 4 << 10
)

// StartDaemon starts the weir binary, one of a group, in a namespace (nil: in ours), with an admin socket in dir, and waits
// until it answers there. A daemon that is returned must be stopped, also if an error is returned with it.
func StartDaemon(ctx context.Context, group *Group, host *netlab.Host, binary, dir, name string, args ...string) (*Daemon, error) {
	socket := filepath.Join(dir, name+".sock")
	d := &Daemon{name: name, admin: "unix:" + socket, ended: make(chan struct{}), interrupted: func() bool { return ctx.Err() != nil }}
	d.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	d.cmd = exec.Command(binary, append(args, "--admin", d.admin)...) //nolint:gosec // our own binary
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	d.cmd.WaitDelay = 5 * time.Second // a child of a killed supervisor keeps the pipes open
	if err := group.Start(host, d.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		d.cmd.Wait() //nolint:errcheck // ProcessState has the result
		group.Forget(d.cmd)
		close(d.ended)
	}()
	for end := time.Now().Add(ReadyTimeout); ; {
		var status any
		err := d.Get(ctx, "/status", &status)
		if err == nil {
			return d, nil
		}
		select {
		case <-d.ended:
			return d, fmt.Errorf("%s ended, %s%s", name, d.cmd.ProcessState, d.log.LastOutput())
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			return d, fmt.Errorf("%s does not answer: %w%s", name, err, d.log.LastOutput())
		}
	}
}

// Ready waits until the daemon is at work.
func (d *Daemon) Ready(ctx context.Context) (err error) {
	for range 500 {
		if _, err = d.Do(ctx, http.MethodGet, "/readyz", ""); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("not ready: %w%s", err, d.log.LastOutput())
}

// Get queries the admin socket and decodes the JSON answer.
func (d *Daemon) Get(ctx context.Context, path string, into any) error {
	body, err := d.Do(ctx, http.MethodGet, path, "")
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// Console runs one command line of the NAT console and returns its answer. What the console refuses is an error.
func (d *Daemon) Console(ctx context.Context, line string) (string, error) {
	answer, err := d.Do(ctx, http.MethodPost, "/console", line+"\n")
	if err == nil && (len(answer) == 0 || bytes.HasPrefix(answer, []byte("error: "))) {
		err = fmt.Errorf("%s: %s: %q", d.name, line, answer)
	}
	return strings.TrimSpace(string(answer)), err
}

// Do queries the admin socket; an answer other than 200 is an error. It returns at most 8 MB.
func (d *Daemon) Do(ctx context.Context, method, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := d.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end below
	answer, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s: %s", d.name, method, path, response.Status)
	}
	return answer, err
}

// Failure is why the process ended by itself; nil while it runs.
func (d *Daemon) Failure() error {
	select {
	case <-d.ended:
		return fmt.Errorf("%s ended before its time, %s%s", d.name, d.cmd.ProcessState, d.log.LastOutput())
	default:
		return nil
	}
}

// Stop interrupts the process and kills it when it does not end. When the context that it was started with has ended, it is killed
// at once, with the processes it started.
func (d *Daemon) Stop() error {
	if err := d.Failure(); err != nil {
		return err
	}
	if d.interrupted() {
		children := procstat.Descendants(d.cmd.Process.Pid) // of a supervisor, which do not end with it
		d.Kill()
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		return nil
	}
	d.cmd.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended
	select {
	case <-d.ended:
		return nil
	case <-time.After(daemonStop):
		d.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-d.ended
		return fmt.Errorf("%s did not end when interrupted", d.name)
	}
}

// Kill ends the process at once: it has nothing to finish.
func (d *Daemon) Kill() {
	d.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-d.ended
}

// Admin is the value of --admin for commands that ask it.
func (d *Daemon) Admin() string { return d.admin }

// PID is the process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Ended is closed when the process has.
func (d *Daemon) Ended() <-chan struct{} { return d.ended }

// LastOutput is the end of what it wrote, for the end of an error message; empty if that is nothing.
func (d *Daemon) LastOutput() string { return d.log.LastOutput() }

// LastLines keeps the end of what a process wrote.
type LastLines struct {
	mu  sync.Mutex
	buf []byte
}

func (l *LastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if extra := len(l.buf) - logBytes; extra > 0 {
		l.buf = append(l.buf[:0], l.buf[extra:]...)
	}
	return len(p), nil
}

// LastOutput is what it wrote, introduced and indented; empty if that is nothing.
func (l *LastLines) LastOutput() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := bytes.TrimSpace(l.buf)
	if len(text) == 0 {
		return ""
	}
	return "; its last output:\n  " + strings.ReplaceAll(string(text), "\n", "\n  ")
}
