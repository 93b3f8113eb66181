package udpnat

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/datapath/kernelnat"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

const (
	// offloadStep is how many entries in the kernel a worker looks at between two batches.
	offloadStep = 256
	// offloadPause is the shortest time between two attempts to enter a flow whose path fails.
	offloadPause = time.Second
	// offloadRetry is how long an entry that the kernel refused stays in user space.
	offloadRetry = 5 * time.Second
)

// offload counts what the kernel forwards for the entries (Config.Offload). The totals of a destination that is gone stay.
type offload struct {
	table *kernelnat.Table // nil: user space forwards everything
	// decisions is the number of what steering decides by, from 1: each snapshot has another one.
	decisions atomic.Uint32

	mu         sync.Mutex
	counted    time.Duration // when count was called last
	to, back   kernelnat.Traffic
	byTarget   map[lb.Target]steer.BackendCounters
	byServices map[string]uint64 // datagrams to backends
}

// offloaded is the part of a destination that offload.mu guards.
type offloaded struct {
	target   uint32 // of kernelnat; 0: none yet
	to, back kernelnat.Traffic
}

func (o *offload) init(table *kernelnat.Table) {
	o.table, o.byTarget, o.byServices = table, map[lb.Target]steer.BackendCounters{}, map[string]uint64{}
	o.decisions.Store(1)
}

// advance makes the next datagram of every flow go through steering again. Every worker has the new snapshot by then.
func (o *offload) advance() {
	o.decisions.Add(1) // before the epoch, see offer
	if o.table != nil {
		o.table.Advance()
	}
}

// suspend leaves the directions that faults disturb to user space.
func (o *offload) suspend(faults ...Faults) {
	if o.table == nil {
		return
	}
	forward, backward := false, false
	for i := range faults {
		forward = forward || faults[i].onlyForward()
		backward = backward || faults[i].LossBackward > 0
	}
	o.table.Suspend(forward, backward)
}

// onlyForward reports whether a fault disturbs datagrams to backends.
func (f *Faults) onlyForward() bool {
	return f.LossForward > 0 || f.SizeLimit > 0 || f.TruncateLimit > 0 || f.ReorderPercent > 0
}

// targetOf returns the number that a destination's datagrams are counted by; false: there are too many destinations.
func (o *offload) targetOf(dest *destination) (uint32, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if dest.offloaded.target == 0 {
		target, ok := o.table.NewTarget()
		if !ok {
			return 0, false
		}
		to, back := o.table.Traffic(target) // of who had the number before
		dest.offloaded = offloaded{target: target, to: to, back: back}
	}
	return dest.offloaded.target, true
}

// free counts a destination that no entry uses for the last time.
func (o *offload) free(dest *destination) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if dest.offloaded.target == 0 {
		return
	}
	o.addLocked(dest)
	o.table.FreeTarget(dest.offloaded.target)
	dest.offloaded = offloaded{}
}

// addLocked adds what the kernel forwarded for a destination since the last time, and returns it.
func (o *offload) addLocked(dest *destination) (to, back kernelnat.Traffic) {
	before := dest.offloaded
	dest.offloaded.to, dest.offloaded.back = o.table.Traffic(before.target)
	to, back = since(dest.offloaded.to, before.to), since(dest.offloaded.back, before.back)
	o.to.Packets += to.Packets
	o.to.Bytes += to.Bytes
	o.back.Packets += back.Packets
	o.back.Bytes += back.Bytes
	sum := o.byTarget[dest.target]
	sum.Packets += to.Packets
	sum.Bytes += to.Bytes
	o.byTarget[dest.target] = sum
	o.byServices[dest.target.Service] += to.Packets
	return to, back
}

func since(now, before kernelnat.Traffic) kernelnat.Traffic {
	return kernelnat.Traffic{Packets: now.Packets - before.Packets, Bytes: now.Bytes - before.Bytes}
}

// count adds up what the kernel forwarded and notes in the watch which destinations have answered, and which have not. The
// datagrams of the last call's time are taken as answered if one of them was.
func (d *Datapath) countOffload(now time.Duration) {
	o := &d.offload
	if o.table == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, dest := range d.watch.destinations() {
		if dest.offloaded.target == 0 {
			continue
		}
		to, back := o.addLocked(dest)
		switch {
		case back.Packets > 0:
			if dest.replied(now) {
				d.revive(dest)
			}
		case to.Packets > 0 && time.Duration(dest.lastReply.Load()) <= o.counted:
			dest.unansweredInKernel(now, int64(to.Packets))
		}
	}
	o.counted = now
}

// addTo adds the totals to those of user space.
func (o *offload) addTo(s *Stats) {
	if o.table == nil {
		return
	}
	report := o.table.Report()
	s.Offload = &report
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &s.Counters
	c.OffloadForwarded, c.OffloadBackwarded = o.to.Packets, o.back.Packets
	c.Received += o.to.Packets
	c.Forwarded += o.to.Packets
	c.ForwardedBytes += o.to.Bytes
	c.Backwarded += o.back.Packets
	c.BackwardedBytes += o.back.Bytes
	s.total[lb.ReasonConntrack] += o.to.Packets
	for name, packets := range o.byServices {
		if sum, known := s.Services[name]; known {
			sum[lb.ReasonConntrack] += packets
			s.Services[name] = sum
		}
	}
	for target, n := range o.byTarget {
		if sum, known := s.Targets[target]; known {
			sum.Packets += n.Packets
			sum.Bytes += n.Bytes
			s.Targets[target] = sum
		}
	}
}

// offer has the kernel forward an entry whose backend has answered more than once and was chosen, or confirmed, by the present
// decisions of steering.
func (w *worker) offer(e *entry, now time.Duration) {
	table := w.dp.offload.table
	if table == nil || !e.proven || e.pinned {
		return
	}
	epoch := table.Epoch() // first: where decisions change from here on, they end this epoch
	if e.steered != w.dp.offload.decisions.Load() {
		return
	}
	if e.kernel != 0 {
		if (e.entered == e.steered || e.repliesOnly == w.seesAll(e)) && table.Renew(e.kernel, epoch) {
			e.entered = e.steered
			return
		}
		w.withdraw(e, now)
		// A client that is gone would otherwise have its flow entered again between two ICMP errors.
		e.offerAfter = e.offeredAt + offloadPause
	}
	if now < e.offerAfter {
		return
	}
	e.offeredAt = now
	e.offerAfter = now + offloadRetry
	local, err := e.socket.LocalAddr()
	target, ok := w.dp.offload.targetOf(e.dest)
	if err != nil || !ok {
		return
	}
	e.repliesOnly = w.seesAll(e)
	id, err := table.Add(kernelnat.Flow{
		Client: e.client, VIP: e.key.Destination(), Local: local, Backend: e.dest.addr,
		Target: target, Epoch: epoch, RepliesOnly: e.repliesOnly,
	})
	if err != nil {
		return // counted, by reason, in the table's report
	}
	e.kernel, e.entered, e.offerAfter = id, e.steered, 0
	e.place = int32(len(w.inKernel))
	w.inKernel = append(w.inKernel, e)
}

// seesAll reports whether user space has to see every datagram from the client of an entry: to look at what it carries.
func (w *worker) seesAll(e *entry) bool {
	service := w.engine.Snapshot().Service(e.service)
	return w.filter || service == nil || service.CID != nil
}

// withdraw takes an entry out of the kernel. It comes before any change of the entry's socket or destination.
func (w *worker) withdraw(e *entry, now time.Duration) {
	if e.kernel == 0 {
		return
	}
	// The entry keeps its place in the list, which the caller may be walking through; what the list loses in order is at most one idleInterval.
	e.last = max(e.last, now-w.dp.offload.table.Idle(e.kernel))
	w.dp.offload.table.Remove(e.kernel)
	e.kernel = 0
	last := w.inKernel[len(w.inKernel)-1]
	w.inKernel[e.place], last.place = last, e.place
	w.inKernel[len(w.inKernel)-1] = nil
	w.inKernel = w.inKernel[:len(w.inKernel)-1]
}

// noteUse brings the time of an entry's last datagram up to date with what the kernel forwarded.
func (w *worker) noteUse(e *entry, now time.Duration) {
	if e.kernel == 0 {
		return
	}
	if last := now - w.dp.offload.table.Idle(e.kernel); w.table.touch(e, last) {
		w.engine.Renew(e.key, last)
	}
}

// noteUses calls noteUse for the next entries of the pass that runDue begins.
func (w *worker) noteUses(now time.Duration) {
	for end := min(w.noted+offloadStep, len(w.inKernel)); w.noted < end; w.noted++ {
		w.noteUse(w.inKernel[w.noted], now)
	}
}
