package scalebench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// peerStage is one run: the programs in their namespace.
type peerStage struct {
	*programs.Stage
	weir                   func(args ...string) *exec.Cmd
	processes, connections int
	period                 time.Duration
	progress               func(format string, args ...any)

	cmds  []*peerProcess
	ended chan error // has room for one: a program that ended by itself
}

type peerProcess struct {
	cmd    *exec.Cmd
	output programs.LastLines
	gone   chan struct{}
}

// share is how many connections client process i has.
func (s *peerStage) share(i int) int {
	n := s.connections / s.processes
	if i < s.connections%s.processes {
		n++
	}
	return n
}

// start starts a program in the namespace.
func (s *peerStage) start(cmd *exec.Cmd) error {
	p := &peerProcess{cmd: cmd, gone: make(chan struct{})}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, &p.output, &p.output
	if err := s.Running.Start(s.Host("all"), cmd); err != nil {
		return err
	}
	s.cmds = append(s.cmds, p)
	go func() {
		defer close(p.gone)
		_ = cmd.Wait() // however it ended, it should not have
		s.Running.Forget(cmd)
		select {
		case s.ended <- fmt.Errorf("%s ended by itself (%v)%s", filepath.Base(cmd.Path), cmd.ProcessState, p.output.LastOutput()):
		default: // the first is enough
		}
	}()
	return nil
}

// end kills all of them, with their children, and waits.
func (s *peerStage) end() {
	for _, p := range s.cmds {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may be gone
	}
	for _, p := range s.cmds {
		<-p.gone
	}
}

func (s *peerStage) startAll(cmds []*exec.Cmd) error {
	for _, cmd := range cmds {
		if err := s.start(cmd); err != nil {
			return err
		}
	}
	return nil
}

func (s *peerStage) pids() (all []int) {
	for _, p := range s.cmds {
		all = append(all, p.cmd.Process.Pid)
	}
	return all
}

// wait looks until done says so. A program that ends meanwhile is an error.
func (s *peerStage) wait(ctx context.Context, timeout time.Duration, done func() bool) error {
	ticker, expired := time.NewTicker(peerLook), time.After(timeout)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-s.ended:
			return err
		case <-expired:
			return fmt.Errorf("nothing within %v%s", timeout, s.cmds[len(s.cmds)-1].output.LastOutput())
		case <-ticker.C:
		}
	}
	return nil
}

// pause lets them hold.
func (s *peerStage) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-s.ended:
		return err
	case <-time.After(d):
		return nil
	}
}
