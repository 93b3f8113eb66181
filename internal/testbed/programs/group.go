package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

// Group is the programs that a run started. Each leads a process group of its own: an interrupt typed at the terminal
// reaches only us, and we end them in order. Its methods may be called from any goroutine.
type Group struct {
	// Swift gives each program a session of its own, which the scheduler prefers to all others where it groups by session
	// (autogroup): else a busy shell elsewhere has the same share as all of ours. Set before the first Start.
	Swift bool

	mu   sync.Mutex
	cmds map[int]program // by process id
	slow error
}

type program struct {
	cmd  *exec.Cmd
	gone chan struct{}
}

// NewGroup returns an empty group.
func NewGroup() *Group { return &Group{cmds: map[int]program{}} }

// Slow is why Swift is not in force, nil if it is.
func (g *Group) Slow() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slow
}

// Start starts a program in a namespace, nil: in ours. It ends with us. Who waits for it calls Forget then.
func (g *Group) Start(host *netlab.Host, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !g.Swift, Setsid: g.Swift, Pdeathsig: syscall.SIGKILL}
	started, gone := make(chan error, 1), make(chan struct{})
	begin := func() error {
		// The death signal follows the thread that has started the process: it must stay for as long.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			<-gone
		}
		return nil
	}
	go func() {
		if host == nil {
			_ = begin() // started has its error
		} else if err := host.Do(begin); err != nil {
			started <- err // nothing was started
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	var slow error
	if g.Swift {
		slow = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte("-15"), 0)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if slow != nil && !errors.Is(slow, syscall.ESRCH) { // unless it has ended already
		g.slow = slow
	}
	if old := g.cmds[cmd.Process.Pid]; old.cmd != nil { // it has ended, and is about to be forgotten
		close(old.gone)
	}
	g.cmds[cmd.Process.Pid] = program{cmd, gone}
	return nil
}

// Run starts a program and waits for it.
func (g *Group) Run(host *netlab.Host, cmd *exec.Cmd) error {
	if err := g.Start(host, cmd); err != nil {
		return err
	}
	err := cmd.Wait()
	g.Forget(cmd)
	return err
}

// Forget is for a program that has been waited for.
func (g *Group) Forget(cmd *exec.Cmd) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.cmds[cmd.Process.Pid]; p.cmd == cmd { // else its number has been given to another already
		close(p.gone)
		delete(g.cmds, cmd.Process.Pid)
	}
}

// End kills every program that no program waits for, with its children.
func (g *Group) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for pid, p := range g.cmds {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // it may have ended
		_ = p.cmd.Wait()                        // it was killed
		close(p.gone)
	}
	clear(g.cmds)
}

// Machine reads the machine's processor time; the group and this process are ours.
func (g *Group) Machine() (procstat.Machine, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	self := os.Getpid()
	return procstat.ReadMachine(func(pid, group int) bool {
		return pid == self || g.cmds[group].cmd != nil
	})
}
