package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// chaosNode is a node of the cluster with its supervisor.
type chaosNode struct {
	number    int // from 0
	name      string
	daemon    *programs.Daemon
	args      []string
	public    string // its DTLS address
	state     string // directory of its sessions
	done      string // file of what it has executed
	clock     time.Duration
	stopped   int             // process that has SIGSTOP; 0: none
	killed    map[uint64]bool // its processes that were killed
	cut, away bool            // it is partitioned; it is drained
}

// startNode starts a node, in a time namespace if its clock is to be elsewhere.
func (c *chaos) startNode(ctx context.Context, n *chaosNode) (err error) {
	binary, args := c.Binary, n.args
	if n.clock != 0 {
		seconds := strconv.FormatInt(int64(n.clock/time.Second), 10)
		binary, args = "unshare", append([]string{"--time", "--monotonic", seconds, "--boottime", seconds, c.Binary}, args...)
		if binary, err = exec.LookPath(binary); err != nil {
			return err
		}
	}
	n.daemon, err = programs.StartDaemon(ctx, c.Running, c.Host(n.name), binary, c.Dir, n.name, args...)
	if n.daemon != nil {
		c.Daemons = append(c.Daemons, n.daemon)
	}
	return err
}

// serving is the node's serving process, which may be about to change.
func (c *chaos) serving(n *chaosNode) (pid int, err error) {
	err = until(c.ctx, programs.ReadyTimeout, func() (err error) {
		pid, err = servingProcess(c.ctx, n.daemon)
		return err
	})
	return pid, err
}

func (c *chaos) kill(n *chaosNode) error {
	pid, err := c.serving(n)
	if err != nil {
		return err
	}
	n.killed[uint64(pid)] = true
	return syscall.Kill(pid, syscall.SIGKILL)
}

func (c *chaos) upgrade(n *chaosNode) error { return syscall.Kill(n.daemon.PID(), syscall.SIGUSR2) }

func (c *chaos) drain(n *chaosNode) error {
	_, err := n.daemon.Do(c.ctx, http.MethodPost, "/drain", "")
	n.away = err == nil
	return err
}

func (c *chaos) undrain(n *chaosNode) error {
	if !n.away { // it was refused
		return nil
	}
	_, err := n.daemon.Do(c.ctx, http.MethodPost, "/undrain", "")
	n.away = err != nil
	return err
}

func (c *chaos) partition(n *chaosNode) error {
	n.cut = true
	return c.Host(chaosSwitch).SetUp(n.name, false)
}

func (c *chaos) heal(n *chaosNode) error {
	n.cut = false
	return c.Host(chaosSwitch).SetUp(n.name, true)
}

func (c *chaos) pause(n *chaosNode) error {
	pid, err := c.serving(n)
	if err != nil {
		return err
	}
	n.stopped = pid
	return syscall.Kill(pid, syscall.SIGSTOP)
}

func (c *chaos) resume(n *chaosNode) error {
	pid := n.stopped
	n.stopped = 0
	if pid == 0 {
		return nil
	}
	return syscall.Kill(pid, syscall.SIGCONT)
}

// chaosClocks is how many days clocks are off: 0, 1 or 2 of the same length, so that they also go back.
const chaosClocks = 3

func (c *chaos) clock(n *chaosNode) error {
	n.clock = 24 * time.Hour * time.Duration((int(n.clock/(24*time.Hour))+2)%chaosClocks) // 0, 2, 1, 0 days: forward once, then back twice
	if err := syscall.Kill(n.daemon.PID(), syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-n.daemon.Ended():
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	return c.startNode(c.ctx, n)
}

func (c *chaos) clearNAT(*chaosNode) error {
	_, err := c.nat.Console(c.ctx, "clear")
	return err
}

// crash kills the supervisor first, or it would start another process.
func (c *chaos) crash(n *chaosNode) error {
	children := procstat.Descendants(n.daemon.PID())
	if len(children) == 0 {
		return errors.New("the supervisor has no process")
	}
	if err := syscall.Kill(n.daemon.PID(), syscall.SIGKILL); err != nil {
		return err
	}
	for _, pid := range children {
		n.killed[uint64(pid)] = true
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	n.daemon.Kill()                // it has ended: this waits for it
	for _, pid := range children { // until its sockets are closed
		if err := until(c.ctx, programs.ReadyTimeout, func() error {
			if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil && len(open) > 0 {
				return fmt.Errorf("process %d goes on", pid)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return os.RemoveAll(n.state)
}

func (c *chaos) restart(n *chaosNode) error { return c.startNode(c.ctx, n) }

// calm undoes what is still in force: the script was cut short.
func (c *chaos) calm() (err error) {
	for _, n := range c.nodes {
		if n.stopped != 0 {
			err = errors.Join(err, c.resume(n))
		}
		if n.cut {
			err = errors.Join(err, c.heal(n))
		}
		if n.away {
			err = errors.Join(err, c.undrain(n))
		}
	}
	return err
}

// newChaosNode is a node that has not been started.
func newChaosNode(i int, dir string) *chaosNode {
	name := "node" + strconv.Itoa(i+1)
	return &chaosNode{number: i, name: name, state: filepath.Join(dir, name+"-state"), done: filepath.Join(dir, name+"-executed"), killed: map[uint64]bool{}}
}
