package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// coapLoad is `weir coap bench` under way.
type coapLoad struct {
	cmd     *exec.Cmd
	running *programs.Group
	out     bytes.Buffer // its result; to be read once it has ended
	begun   chan struct{}
	ended   chan struct{}
	err     error // of the process; likewise

	mu      sync.Mutex
	samples []v1.CoAPBenchSample
	last    string // line that is no sample
}

// startCoapLoad starts clients of a URI in a namespace, which go on until they are ended.
func startCoapLoad(s *programs.Stage, namespace, uri string, args ...string) (*coapLoad, error) {
	return followCoapLoad(s, namespace, exec.Command(s.Binary, append([]string{"coap", "bench", uri, "--no-stop", "--allow-errors", "--json"}, args...)...)) //nolint:gosec // our own binary
}

// followCoapLoad starts a command of `weir coap bench` in a namespace.
func followCoapLoad(s *programs.Stage, namespace string, cmd *exec.Cmd) (*coapLoad, error) {
	l := &coapLoad{cmd: cmd, running: s.Running, begun: make(chan struct{}), ended: make(chan struct{})}
	l.cmd.Stdout = &l.out
	progress, err := l.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.Running.Start(s.Host(namespace), l.cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(l.ended)
		l.read(progress)
		l.err = l.cmd.Wait()
		l.running.Forget(l.cmd)
	}()
	return l, nil
}

// read takes what the clients report until they end.
func (l *coapLoad) read(progress io.Reader) {
	begun := false
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		var sample v1.CoAPBenchSample
		err := json.Unmarshal(lines.Bytes(), &sample)
		l.mu.Lock()
		if err == nil {
			l.samples = append(l.samples, sample)
		} else {
			l.last = lines.Text()
		}
		l.mu.Unlock()
		if !begun && lines.Text() == benchStarted {
			begun = true
			close(l.begun)
		}
	}
}

// started waits until every client has its session.
func (l *coapLoad) started(ctx context.Context) error {
	select {
	case <-l.begun:
		return nil
	case <-l.ended:
		return l.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// failure is why the clients have ended by themselves; nil while they run.
func (l *coapLoad) failure() error {
	select {
	case <-l.ended:
		l.mu.Lock()
		defer l.mu.Unlock()
		return errors.Join(fmt.Errorf("the clients have ended: %s", l.last), l.err)
	default:
		return nil
	}
}

// taken are the samples so far.
func (l *coapLoad) taken() []v1.CoAPBenchSample {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.samples)
}

// settled reports whether every client has had an answer, or no hope for one, since a time.
func (l *coapLoad) settled(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.samples) == 0 {
		return false
	}
	latest := &l.samples[len(l.samples)-1]
	return latest.At.Add(-millis(latest.Waiting)).After(since)
}

// loadEnd bounds how long the clients may take to end.
const loadEnd = 20 * time.Second

// end ends the clients and returns their result.
func (l *coapLoad) end(ctx context.Context) (total v1.CoAPBench, err error) {
	if err := l.failure(); err != nil {
		return total, err
	}
	_ = l.cmd.Process.Signal(os.Interrupt) // if it has ended meanwhile, its result says so
	limited, cancel := context.WithTimeout(ctx, loadEnd)
	defer cancel()
	return l.result(limited)
}

// result is that of clients that end, at the latest with ctx.
func (l *coapLoad) result(ctx context.Context) (total v1.CoAPBench, err error) {
	select {
	case <-l.ended:
	case <-ctx.Done():
		return total, fmt.Errorf("the clients do not end: %w", ctx.Err())
	}
	if err = l.err; err == nil {
		err = json.Unmarshal(l.out.Bytes(), &total)
	}
	if err != nil {
		return total, fmt.Errorf("result of the clients: %w", err)
	}
	return total, nil
}

// stop kills the clients if they have not ended.
func (l *coapLoad) stop() {
	if l.failure() == nil {
		_ = l.cmd.Process.Kill() // it may have ended
		<-l.ended
	}
}
