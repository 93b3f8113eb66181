// Package fastpath is the queue data path with a kernel program in front of it.
//
//	packet ──► TCX program: decides, sets the mark ──────────────────────────► leaves
//	             └─ what it leaves undecided ──► iptables ──► NFQUEUE ─ verdict ─► leaves
//
// Both run under the same snapshot. The program decides packets exactly as the queue would. If it cannot decide every packet
// of a snapshot, the queue gets that snapshot alone, so that a flow never depends on which of the two saw it.
package fastpath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/nfqueue"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Config says when the program is used.
type Config struct {
	Program ebpf.Config // of the program: Hook is TCX and Front is set
	Must    bool        // refuse a snapshot that the program cannot decide all of
	Never   string      // the reason why the program is never used; "" if it may be used
	// End ends a program that an earlier process has left attached, where this one does not use it; nil: there is none.
	End func() error
	Log *slog.Logger
}

// Datapath is the queue data path with the kernel's TCX program in front of it. It takes every snapshot that the queue
// takes. If the program cannot decide every packet of a snapshot, the queue gets it alone, or Apply refuses it with
// Config.Must. Several goroutines may call its methods.
type Datapath struct {
	queue  *nfqueue.Datapath
	config Config

	mu       sync.Mutex
	program  *ebpf.Datapath // nil: not in use
	why      string         // why not
	snapshot *lb.Snapshot
	running  context.Context //nolint:containedctx // that of Run: programs come and go with snapshots
	cancel   context.CancelFunc
	ended    chan struct{} // of the program's Run
	broken   chan error    // capacity 1: the program's Run, where it must not end
	alone    bool          // no program of an earlier process is left
}

// New returns the data path of an opened queue. The program starts when a snapshot is applied. Close also closes the queue.
func New(queue *nfqueue.Datapath, config Config) *Datapath {
	return &Datapath{queue: queue, config: config, broken: make(chan error, 1)}
}

// Caps returns the capabilities of the queue, which takes what the program leaves undecided.
func (d *Datapath) Caps() lb.Caps { return d.queue.Caps() }

// Apply applies the snapshot to the queue, then to the program. After an error both keep the last snapshot.
func (d *Datapath) Apply(s *lb.Snapshot) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	why := cmp.Or(d.config.Never, refusal(s))
	if why != "" && d.config.Must {
		return fmt.Errorf("--fast on: %s; take that out of the configuration, or use --fast auto", why)
	}
	if err := d.queue.Apply(s); err != nil {
		return err
	}
	if why == "" {
		if err := d.applyLocked(s); err == nil {
			d.snapshot = s
			return nil
		} else if d.config.Must {
			if d.snapshot != nil {
				err = errors.Join(err, d.queue.Apply(d.snapshot))
			}
			return fmt.Errorf("--fast on: %w", err)
		} else {
			why = err.Error()
		}
	}
	d.snapshot = s
	return d.dropLocked(why)
}

// applyLocked applies the snapshot to the program, and starts the program if it is not in use.
func (d *Datapath) applyLocked(s *lb.Snapshot) error {
	if d.program != nil {
		return d.program.Apply(s)
	}
	program, err := d.start(s)
	if err != nil {
		return err
	}
	d.program, d.why, d.alone = program, "", false
	if d.running != nil {
		d.runLocked()
	}
	d.config.Log.Info("the fast path is in use: the TCX program marks what it can, the queue gets the rest", "interfaces", d.config.Program.Interfaces)
	return nil
}

// start attaches the program. A program that cannot be pinned is used all the same: it ends with this process.
func (d *Datapath) start(s *lb.Snapshot) (*ebpf.Datapath, error) {
	config := d.config.Program
	program, err := open(config, s)
	if err == nil || config.PinPath == "" {
		return program, err
	}
	path := config.PinPath
	config.PinPath = ""
	unpinned, again := open(config, s)
	if again != nil {
		return nil, err
	}
	d.config.Log.Warn("the fast path's program cannot be kept: it ends with this process", "pins", path, "error", err)
	return unpinned, nil
}

func open(config ebpf.Config, s *lb.Snapshot) (*ebpf.Datapath, error) {
	program, err := ebpf.Open(config)
	if err != nil {
		return nil, err
	}
	if err := program.Apply(s); err != nil {
		return nil, errors.Join(err, program.Abandon())
	}
	return program, nil
}

// dropLocked stops the program, so that the queue decides every packet.
func (d *Datapath) dropLocked(why string) error {
	if why != d.why {
		d.config.Log.Info("the fast path is not in use: every packet goes to the queue", "why", why)
	}
	d.why = why
	err := d.endLocked((*ebpf.Datapath).Close)
	if d.config.End == nil || d.alone {
		return err
	}
	d.alone = true
	return errors.Join(err, d.config.End())
}

// endLocked ends the use of the program in this process. A pinned one stays attached.
func (d *Datapath) endLocked(end func(*ebpf.Datapath) error) error {
	if d.program == nil {
		return nil
	}
	if d.cancel != nil {
		d.cancel()
		<-d.ended
		d.cancel = nil
	}
	err := end(d.program)
	d.program = nil
	return err
}

// runLocked keeps the program's tables in order until it is dropped or Run's context ends.
func (d *Datapath) runLocked() {
	ctx, cancel := context.WithCancel(d.running)
	program, ended := d.program, make(chan struct{})
	d.cancel, d.ended = cancel, ended
	go func() {
		defer close(ended)
		if err := program.Run(ctx); err != nil && ctx.Err() == nil {
			select {
			case d.broken <- fmt.Errorf("fast path: %w", err):
			default: // one is enough
			}
		}
	}()
}

// Run forwards packets until ctx ends or one of the two cannot continue.
func (d *Datapath) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	d.running = ctx
	if d.program != nil {
		d.runLocked()
	}
	d.mu.Unlock()
	queue := make(chan error, 1)
	go func() { queue <- d.queue.Run(ctx) }()
	var err error
	select {
	case err = <-queue:
		cancel()
	case err = <-d.broken:
		cancel()
		err = errors.Join(err, <-queue)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancel != nil {
		d.cancel()
		<-d.ended
		d.cancel = nil
	}
	d.running = nil
	return err
}

// Close leaves a pinned program attached: flows go on by it until the next process takes it over.
func (d *Datapath) Close() error { return d.close((*ebpf.Datapath).Close) }

// Abandon is Close for a start that failed: a program that this start attached goes.
func (d *Datapath) Abandon() error { return d.close((*ebpf.Datapath).Abandon) }

func (d *Datapath) close(end func(*ebpf.Datapath) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.endLocked(end), d.queue.Close())
}

// Status reports whether the program is in use, and if not, why.
func (d *Datapath) Status() (inUse bool, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.program != nil, d.why
}

// Program calls f with the program if it is in use, and reports whether it is. f must not call methods of d.
func (d *Datapath) Program(f func(*ebpf.Datapath)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.program == nil {
		return false
	}
	f(d.program)
	return true
}
