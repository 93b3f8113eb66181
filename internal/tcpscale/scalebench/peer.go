package scalebench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/limits"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// PeerConfig is one comparison of Weir with other testers ([Peers]). It needs root: each run has a network namespace of its
// own, so that the kernel's counters are of that run alone.
type PeerConfig struct {
	Weir        func(args ...string) *exec.Cmd // makes a process of our own program
	With        []string                       // of [PeerNames]
	Connections int
	Hold        time.Duration
	Heartbeat   time.Duration // period of each connection, where a program can
	Rounds      int           // every second one in reverse order
	Progress    func(format string, args ...any)
}

// PeerRun is what the kernel and /proc say of one program in one round; nothing is the program's own claim.
type PeerRun = v1.TCPRun

// PeerResult is a comparison, and how it is shown.
type PeerResult v1.TCPComparison

// errPeers is what makes a comparison impossible here.
var errPeers = errors.New("cannot compare")

// Validate says what cannot be meant, and which program is not installed, with the command that brings it.
func (c *PeerConfig) Validate() error {
	switch {
	case c.Connections < 1:
		return fmt.Errorf("%d connections: at least 1", c.Connections)
	case c.Hold < time.Second:
		return fmt.Errorf("hold of %v: at least 1s", c.Hold)
	case c.Rounds < 1 || c.Rounds > 100:
		return fmt.Errorf("%d rounds: want 1 to 100", c.Rounds)
	}
	var missing []string
	for i, name := range c.With {
		p := peerNamed(name)
		if p == nil {
			return fmt.Errorf("no program %q: write %s", name, strings.Join(PeerNames(), ", "))
		}
		if slices.Contains(c.With[:i], name) {
			return fmt.Errorf("%s is named twice", name)
		}
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, fmt.Sprintf("%s is not in the PATH (install: %s)", name, p.install))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s", errPeers, strings.Join(missing, "; "))
	}
	return nil
}

// Peers examines the limits, then measures Weir and each program in turn. A program that fails is a result, and the others
// go on. An end of ctx ends the run in hand, which leaves no row; what was measured before is returned. Nothing is left running.
func Peers(ctx context.Context, c PeerConfig) (*PeerResult, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := netlab.Privileged(); err != nil {
		return nil, fmt.Errorf("%w: each run has a network namespace of its own: %w", errPeers, err)
	}
	findings := limits.Examine(limits.Read(), limits.Want{Connections: c.Connections, BothEnds: true})
	if !limits.Fits(findings) {
		return nil, &UnfitError{findings}
	}
	files, err := tcpscale.RaiseFiles()
	if err != nil {
		return nil, err
	}
	// The kernel's spread over the workers of one port is not quite even.
	processes := min(tcpscale.WorkersFor(c.Connections+c.Connections/25, files), c.Connections)
	programs := []*peer{weirPeer()}
	for _, name := range c.With {
		programs = append(programs, peerNamed(name))
	}
	result := &PeerResult{At: time.Now(), Machine: machine(), Connections: c.Connections, Findings: findings}
	defer result.judge()
	floors := map[string]*peerFigures{}
	for _, p := range slices.Clone(programs) {
		c.Progress("%s: %d processes with one connection each", p.name, processes)
		f, err := c.measure(ctx, p, processes, processes, min(c.Hold, floorHold))
		if err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx) // nothing was measured yet
		}
		if floors[p.name] = f; err != nil {
			result.fail(c.Progress, p, 1, processes, f, fmt.Errorf("with one connection for each process: %w", err))
			programs = slices.DeleteFunc(programs, func(other *peer) bool { return other == p })
		}
	}
	for round := range c.Rounds {
		for _, p := range programs {
			c.Progress("round %d of %d, %s: %d connections", round+1, c.Rounds, p.name, c.Connections)
			full, err := c.measure(ctx, p, processes, c.Connections, c.Hold)
			if err != nil && ctx.Err() != nil {
				result.Interrupted = true
				return result, nil
			}
			if err != nil {
				result.fail(c.Progress, p, round+1, processes, full, err)
				continue
			}
			run := full.run(p, floors[p.name])
			run.Round = round + 1
			result.Runs = append(result.Runs, run)
			c.Progress("  %s", runLine(&run))
		}
		slices.Reverse(programs)
	}
	return result, nil
}

// fail is the row of a program that came to no figures.
func (r *PeerResult) fail(progress func(string, ...any), p *peer, round, processes int, f *peerFigures, err error) {
	run := PeerRun{Program: p.name, Server: p.server, Round: round, Processes: processes, Failed: err.Error()}
	if f != nil {
		run.Reached = f.peak
	}
	progress("  %s: %s", p.name, runFailure(&run))
	r.Runs = append(r.Runs, run)
}

// floorHold is the hold of a run that only measures what the processes take by themselves.
const floorHold = 3 * time.Second

// measure is one run in a namespace of its own, which ends with everything in it.
func (c *PeerConfig) measure(ctx context.Context, p *peer, processes, connections int, hold time.Duration) (f *peerFigures, err error) {
	stage, err := programs.OpenStage("", &netlab.Topology{Name: "benchtcp", Namespaces: []netlab.Namespace{{Name: "all"}}})
	if err != nil {
		return nil, err
	}
	s := &peerStage{
		Stage: stage, weir: c.Weir, processes: processes, connections: connections, period: c.Heartbeat, progress: c.Progress, ended: make(chan error, 1),
	}
	s.Running.Swift = true // else a busy shell elsewhere has the same share as all of a program's processes
	defer func() { s.end(); err = errors.Join(err, s.Close()) }()
	return s.run(ctx, p, hold)
}

func (r *PeerResult) judge() {
	var wrong []string
	for i := range r.Runs {
		switch run := &r.Runs[i]; {
		case run.Failed != "":
			wrong = append(wrong, fmt.Sprintf("%s, round %d: %s", run.Program, run.Round, runFailure(run)))
		case run.Program == weirName && (run.Held < r.Connections || run.Lost > 0 || run.Accepted < r.Connections):
			wrong = append(wrong, fmt.Sprintf("weir, round %d: %d of %d connections held, %d accepted, %d lost", run.Round, run.Held, r.Connections, run.Accepted, run.Lost))
		}
	}
	if r.Interrupted {
		wrong = append(wrong, fmt.Sprintf("interrupted after %d runs", len(r.Runs)))
	}
	if r.OK = len(wrong) == 0; !r.OK {
		r.Verdict = strings.Join(wrong, "; ")
		return
	}
	r.Verdict = fmt.Sprintf("weir held %d connections in every round, 0 lost", r.Connections)
}
