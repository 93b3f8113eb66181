package bench

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
	"strings"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/lab/netlab"
)

// daemon is one process under measurement, reached through its admin socket.
type daemon struct {
	name  string
	cmd   *exec.Cmd
	http  *http.Client
	log   lastLines
	ended chan struct{}
}

const (
	daemonReady = 60 * time.Second
	daemonStop  = 20 * time.Second
	logBytes    = 4 << 10
)

// startDaemon runs the binary with an admin socket in dir and waits until it answers there. A daemon that is returned must be
// stopped, also beside an error.
func startDaemon(ctx context.Context, binary, dir, name string, args ...string) (*daemon, error) {
	return startDaemonIn(ctx, newGroup(), nil, binary, dir, name, args...)
}

// startDaemonIn is startDaemon in a namespace, as one of a group of programs.
func startDaemonIn(ctx context.Context, group *group, host *netlab.Host, binary, dir, name string, args ...string) (*daemon, error) {
	socket := socketPath(dir, name)
	d := &daemon{name: name, ended: make(chan struct{})}
	d.http = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	d.cmd = exec.Command(binary, append(args, "--admin", "unix:"+socket)...) //nolint:gosec // our own binary
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	if err := group.start(host, d.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		d.cmd.Wait() //nolint:errcheck // ProcessState tells
		group.forget(d.cmd)
		close(d.ended)
	}()
	for end := time.Now().Add(daemonReady); ; {
		var status any
		err := d.get(ctx, "/status", &status)
		if err == nil {
			return d, nil
		}
		select {
		case <-d.ended:
			return d, fmt.Errorf("%s ended, %s%s", name, d.cmd.ProcessState, d.log.said())
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			return d, fmt.Errorf("%s does not answer: %w%s", name, err, d.log.said())
		}
	}
}

// ready waits until the daemon is at work.
func (d *daemon) ready(ctx context.Context) (err error) {
	for range 500 {
		if _, err = d.do(ctx, http.MethodGet, "/readyz", ""); err == nil {
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("not ready: %w%s", err, d.log.said())
}

// get asks the admin socket and decodes the JSON answer.
func (d *daemon) get(ctx context.Context, path string, into any) error {
	body, err := d.do(ctx, http.MethodGet, path, "")
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// console runs one command line. What the console refuses is an error.
func (d *daemon) console(ctx context.Context, line string) error {
	answer, err := d.do(ctx, http.MethodPost, "/console", line+"\n")
	if err == nil && (len(answer) == 0 || bytes.HasPrefix(answer, []byte("error: "))) {
		err = fmt.Errorf("%s: %s: %q", d.name, line, answer)
	}
	return err
}

func (d *daemon) do(ctx context.Context, method, path, body string) ([]byte, error) {
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

// failure is why the process ended by itself; nil while it runs.
func (d *daemon) failure() error {
	select {
	case <-d.ended:
		return fmt.Errorf("%s ended before its time, %s%s", d.name, d.cmd.ProcessState, d.log.said())
	default:
		return nil
	}
}

// stop interrupts the process and kills it when it does not end.
func (d *daemon) stop() error {
	if err := d.failure(); err != nil {
		return err
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

// kill ends the process at once: it has nothing to finish.
func (d *daemon) kill() {
	d.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-d.ended
}

// lastLines keeps the end of what a process wrote.
type lastLines struct {
	mu  sync.Mutex
	buf []byte
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if extra := len(l.buf) - logBytes; extra > 0 {
		l.buf = append(l.buf[:0], l.buf[extra:]...)
	}
	return len(p), nil
}

func (l *lastLines) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := bytes.TrimSpace(l.buf)
	if len(text) == 0 {
		return ""
	}
	return "; it said:\n  " + strings.ReplaceAll(string(text), "\n", "\n  ")
}
