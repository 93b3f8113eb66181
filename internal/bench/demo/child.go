package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-lb/weir/client"
)

// child is one process of the demo, reached through its admin socket.
type child struct {
	name  string
	cmd   *exec.Cmd
	log   tail
	door  *client.Client
	ended chan struct{}
	err   error // why it ended; set before ended closes
}

const (
	readyWithin = 60 * time.Second
	readyPoll   = 50 * time.Millisecond
	stopWithin  = 20 * time.Second
)

// start runs the binary with args and an admin socket in dir. A child never outlives
// this process: the kernel kills it when its parent dies.
func start(binary, dir, name string, args ...string) (*child, error) {
	socket := "unix:" + filepath.Join(dir, name+".sock")
	c := &child{name: name, door: client.New(socket, ""), ended: make(chan struct{})}
	c.cmd = exec.Command(binary, append(args, "--admin", socket)...) //nolint:gosec // our own binary
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// ready waits until the child answers and says that it serves.
func (c *child) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	var last error
	for {
		var status any
		if last = c.door.Get(ctx, "/status", nil, &status); last == nil {
			return nil
		}
		select {
		case <-c.ended:
			return c.died()
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w%s", c.name, last, c.log.said())
		case <-poll.C:
		}
	}
}

func (c *child) died() error {
	return fmt.Errorf("%s ended (%w)%s", c.name, cmpErr(c.err), c.log.said())
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// stop asks the child to end, and kills it when it does not.
func (c *child) stop() {
	c.cmd.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended
	select {
	case <-c.ended:
	case <-time.After(stopWithin):
		c.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-c.ended
	}
}

// tail keeps the last lines that a child wrote, to show when it fails.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if extra := len(t.buf) - tailBytes; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(p), nil
}

func (t *tail) said() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.buf)
	if len(text) == 0 {
		return ""
	}
	return "; it said:\n  " + strings.ReplaceAll(string(text), "\n", "\n  ")
}
