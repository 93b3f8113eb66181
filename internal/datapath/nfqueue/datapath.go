package nfqueue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/workers"
)

// Datapath decides the packets of its queues according to the snapshot that was applied last. Any goroutine may call its
// methods.
type Datapath struct {
	config Config
	kernel []*kernelQueue // empty over queues in memory
	table  *os.File       // the kernel's statistics of this namespace's queues; nil over queues in memory
	trace  atomic.Pointer[Trace]

	mu       sync.Mutex // guards the rest, and serializes requests to workers
	snapshot *lb.Snapshot
	queues   []queue
	workers  []*worker // from the first Apply on, which names the limits
	group    *workers.Group[*worker]
	began    bool // Run was called; it may be called once
	closed   bool
	pause    metrics.Histogram // of the workers, while flows are listed

	kept kept
	full evict.Full // of the goroutine that watches
}

// Open opens the sockets in the network namespace of the calling thread. The first Apply takes the queues. Until then there
// is nothing to decide by, so another program may still serve them.
func Open(config Config) (*Datapath, error) {
	if err := config.setDefaults(); err != nil {
		return nil, fmt.Errorf("open the nfqueue data path: %w", err)
	}
	d := newDatapath(config)
	for i := range config.Count {
		q, err := openQueue(&d.config, config.First+uint16(i))
		if err != nil {
			_ = d.Close()
			return nil, fmt.Errorf("open the nfqueue data path: %w", err)
		}
		d.kernel, d.queues = append(d.kernel, q), append(d.queues, q)
	}
	refusal := d.kernel[0].configure() // changes nothing, but makes the kernel load its module
	if err := d.openTable(refusal); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("open the nfqueue data path: %w", err)
	}
	return d, nil
}

func newDatapath(config Config) *Datapath {
	d := &Datapath{config: config}
	d.group = workers.New[*worker](&d.mu, workers.Limits{Messages: maxRequests})
	return d
}

// openTable opens the kernel's table of queues. refusal is the kernel's error for a message about the first queue.
func (d *Datapath) openTable(refusal error) error {
	var err error
	d.table, err = os.Open(kernelTable)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("this kernel has no NFQUEUE; load it with `modprobe nfnetlink_queue`")
	case err != nil && !errors.Is(err, os.ErrPermission):
		return err
	case err != nil:
		d.table = nil
	}
	// EPERM also means that another program has the queue; bind reports that.
	if rows, _ := d.readTable(); errors.Is(refusal, unix.EPERM) && rows[d.config.First] == (KernelQueue{}) {
		return fmt.Errorf("%w; it needs CAP_NET_ADMIN in this network namespace", refusal)
	}
	if err != nil {
		d.config.Log.Warn("drops and waiting packets of the queues will show as 0", "error", err, "remedy", "run weir as root")
	}
	return nil
}

// Caps returns what this data path can do.
func (d *Datapath) Caps() lb.Caps { return Caps() }

// Respond returns when every worker has answered: a watchdog calls it.
func (d *Datapath) Respond() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.group.Do(func(*worker) {})
	}
}

// Apply changes to a snapshot completely or, with an error, not at all. When Apply returns, every worker uses it; workers
// change between two batches of packets. The first Apply takes the queues.
func (d *Datapath) Apply(s *lb.Snapshot) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.New("apply: the data path is closed")
	}
	if d.workers != nil {
		d.snapshot = s
		d.group.Do(func(w *worker) { w.engine.SetSnapshot(s) })
		return nil
	}
	if err := d.bind(); err != nil {
		return err
	}
	d.snapshot = s
	d.openFlowFile(s)
	for i, q := range d.queues {
		w := newWorker(q, d.config.First+uint16(i), &d.config, s, &d.trace, d.kept.journal(i))
		w.inbox = d.group.Add(w, q.Wake)
		d.workers = append(d.workers, w)
	}
	for i, w := range d.workers {
		w.queries.peers = slices.Delete(slices.Clone(d.workers), i, i+1)
	}
	d.restoreFlows()
	return nil
}

// bind takes all queues or none.
func (d *Datapath) bind() error {
	for i, q := range d.kernel {
		err := q.bind(&d.config)
		if err == nil {
			continue
		}
		for _, bound := range d.kernel[:i+1] {
			bound.unbind()
		}
		return d.explain(q.number, err)
	}
	if len(d.kernel) > 0 {
		q := d.kernel[0]
		d.config.Log.Info("queues", "first", d.config.First, "last", int(d.config.First)+len(d.kernel)-1,
			"length", d.config.Length, "copy_range", d.config.CopyRange, "batch", d.config.Batch,
			"receive_buffer", q.buffer, "fail_open", d.config.FailOpen)
		if q.buffer < d.config.ReceiveBuffer {
			d.config.Log.Warn("the receive buffer is smaller than requested: bursts will be lost", "asked", d.config.ReceiveBuffer,
				"in_force", q.buffer, "remedy", "raise net.core.rmem_max, or give weir CAP_NET_ADMIN")
		}
	}
	return nil
}

// explain translates an error number of the kernel into its cause.
func (d *Datapath) explain(number uint16, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EPERM):
		if rows, _ := d.readTable(); rows != nil {
			if row, taken := rows[number]; taken {
				return fmt.Errorf("take queue %d: port id %d (often a process id) has it; end that process, or choose other queues", number, row.PortID)
			}
		}
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("take queue %d: %w; it needs CAP_NET_ADMIN in this network namespace", number, err)
		}
	}
	return fmt.Errorf("take queue %d: %w", number, err)
}

// Run decides packets until ctx ends, and then returns nil. Before it returns it decides the packets that wait and drops
// held fragments. It returns an error if a worker cannot continue. It runs once.
func (d *Datapath) Run(ctx context.Context) error {
	err := d.group.Run(ctx, d.beginLocked, (*worker).run, d.watch)
	if errors.Is(err, errBegin) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(err, d.closeQueuesLocked())
}

var errBegin = errors.New("run the nfqueue data path: it runs already, has ended, or nothing was applied")

func (d *Datapath) beginLocked() error {
	if d.began || d.closed || d.workers == nil {
		return errBegin
	}
	d.began = true
	return nil
}

func (d *Datapath) closeQueuesLocked() error {
	var errs []error
	for _, q := range d.queues {
		errs = append(errs, q.Close())
	}
	d.queues = nil
	return errors.Join(errs...)
}

// Close releases the queues. Without an earlier Run it drops the packets that wait in them. Run must have returned.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.group.Running() {
		return errors.New("close the nfqueue data path: it still runs")
	}
	if d.closed {
		return nil
	}
	d.closed = true
	err := errors.Join(d.closeQueuesLocked(), d.kept.close(d.config.DropFlows))
	if d.table != nil {
		err = errors.Join(err, d.table.Close())
	}
	return err
}

const logInterval = 10 * time.Second

// watch logs problems, at most once every logInterval, until ctx ends.
func (d *Datapath) watch(ctx context.Context) {
	ticker := time.NewTicker(logInterval)
	defer ticker.Stop()
	d.full.Becomes(0, d.config.Now())
	var before troubles
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			before = d.complain(before)
		}
	}
}
