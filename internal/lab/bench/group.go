package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/weir-lb/weir/internal/lab/netlab"
	"github.com/weir-lb/weir/internal/lab/procstat"
)

// group is the programs that a run started. Each leads a process group of its own: an interrupt typed at the terminal
// reaches only us, and we end them in order.
type group struct {
	// swift gives each program a session of its own, which the scheduler prefers to all others where it groups by session
	// (autogroup): else a busy shell elsewhere has the same share as all of ours.
	swift bool

	mu   sync.Mutex
	cmds map[int]*exec.Cmd // by process id
	slow error             // why swift is not in force
}

func newGroup() *group { return &group{cmds: map[int]*exec.Cmd{}} }

// start starts a program in a namespace, nil: in ours. It dies with us.
func (g *group) start(host *netlab.Host, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !g.swift, Setsid: g.swift, Pdeathsig: syscall.SIGKILL}
	start := cmd.Start
	if host != nil {
		start = func() error { return host.Start(cmd) }
	}
	if err := start(); err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	var slow error
	if g.swift {
		slow = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte("-15"), 0)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if slow != nil && !errors.Is(slow, syscall.ESRCH) { // unless it has ended already
		g.slow = slow
	}
	g.cmds[cmd.Process.Pid] = cmd
	return nil
}

// run starts a program and waits for it.
func (g *group) run(host *netlab.Host, cmd *exec.Cmd) error {
	if err := g.start(host, cmd); err != nil {
		return err
	}
	err := cmd.Wait()
	g.forget(cmd)
	return err
}

func (g *group) forget(cmd *exec.Cmd) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.cmds, cmd.Process.Pid)
}

// end kills every program that nobody waits for, with its children.
func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for pid, cmd := range g.cmds {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()                          // it was killed
	}
	clear(g.cmds)
}

// machine reads the machine's processor time; the group and this process are ours.
func (g *group) machine() (procstat.Machine, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	self := os.Getpid()
	return procstat.ReadMachine(func(pid, group int) bool {
		return pid == self || g.cmds[group] != nil
	})
}
