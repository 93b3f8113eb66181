package udpnat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/evict"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
	"github.com/weir-lb/weir/internal/udpio"
	"github.com/weir-lb/weir/internal/workers"
)

// Datapath forwards UDP according to the snapshot that was applied last. Any goroutine may call its methods.
type Datapath struct {
	config  Config
	watch   watch
	entries atomic.Int64 // of all workers
	proven  atomic.Int64 // of entries
	limit   atomic.Int64 // on entries
	scarce  atomic.Int64 // number of entries when descriptors or ports ran out; 0: they did not run out
	view    atomic.Pointer[view]
	offload offload
	revived chan struct{}

	mu      sync.Mutex // guards what follows, and serializes requests to workers
	workers []*worker
	groups  map[netip.AddrPort]*udpio.Group
	reverse bool
	faults  Faults
	fallen  uint64            // backends that turned stale
	pause   metrics.Histogram // of the workers, while entries are listed
	group   *workers.Group[*worker]
	closed  bool

	// Only the watching goroutine uses these.
	reported map[lb.Target]bool // silent, as last reported to OnLiveness
	fills    evict.Full
}

// Open prepares the workers. They listen after Apply and forward during Run.
func Open(config Config) (*Datapath, error) {
	if err := config.setDefaults(); err != nil {
		return nil, fmt.Errorf("open the udp data path: %w", err)
	}
	d := &Datapath{
		config: config, reverse: config.Reverse, faults: config.Faults,
		groups: map[netip.AddrPort]*udpio.Group{}, revived: make(chan struct{}, 1), reported: map[lb.Target]bool{},
	}
	d.offload.init(config.Offload)
	d.offload.suspend(config.Faults)
	d.group = workers.New[*worker](&d.mu, workers.Limits{})
	d.watch = watch{
		timeout: config.BackendTimeout, limit: int64(config.UnansweredLimit), after: config.UnansweredAfter,
		all: map[destinationKey]*destination{}, everAnswered: map[string]*atomic.Bool{},
	}
	d.view.Store(&view{snapshot: &lb.Snapshot{}, shortestIdle: lb.Never})
	for i := range config.Workers {
		poller, err := udpio.NewPoller(eventsSize)
		if err != nil {
			_ = d.Close()
			return nil, fmt.Errorf("open the udp data path: %w", err)
		}
		w := &worker{
			dp: d, id: i, poller: poller, faults: newFaultState(config.Faults, i), reverse: config.Reverse,
			filter: config.DTLSFilter, shortestIdle: lb.Never,
			in: udpio.NewMessages(batchSize, longest), slab: make([]byte, slabSize),
			engine: steer.New(&lb.Snapshot{}, d.engineOptions()),
		}
		w.inbox = d.group.Add(w, poller.Wake)
		w.connected = !config.Unconnected && !config.Reverse
		w.table.init()
		d.workers = append(d.workers, w)
	}
	return d, nil
}

func (d *Datapath) engineOptions() steer.Options {
	// The entries are bounded here, and the Engine's table has one flow per entry. It must not become full before they do.
	return steer.Options{Proxy: true, NoHold: true, MaxFlows: maxEntries, Workers: d.config.Workers}
}

func (d *Datapath) full() bool { return d.entries.Load() >= d.limit.Load() }

// Caps is what this data path can do.
func (d *Datapath) Caps() lb.Caps { return Caps() }

// Apply changes to a snapshot completely or, with an error, not at all. New VIPs listen before old ones stop. Entries of
// removed VIPs close; all others stay.
func (d *Datapath) Apply(s *lb.Snapshot) error {
	next, err := newView(s)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errors.New("apply: the data path is closed")
	}
	opened := map[netip.AddrPort]*udpio.Group{}
	for _, at := range next.listen {
		if d.groups[at] != nil {
			continue
		}
		group, err := udpio.Listen(udpio.Config{
			Addr: at, Sockets: len(d.workers), Batch: batchSize, ReadBuffer: d.config.ReadBuffer,
			OnlyIPv6: true,                                          // 0.0.0.0 and :: may both be VIPs
			FreeBind: s.Announce != nil && len(s.Announce.VRRP) > 0, // another machine may have the VIP now
		})
		if err != nil {
			for _, g := range opened {
				_ = g.Close()
			}
			return err
		}
		opened[at] = group
	}
	gone := map[netip.AddrPort]*udpio.Group{}
	for at, group := range d.groups {
		gone[at] = group
	}
	for _, at := range next.listen {
		delete(gone, at)
	}
	if err := d.listenLocked(opened); err != nil {
		return err
	}
	d.view.Store(next)
	d.limit.Store(int64(cmp.Or(d.config.MaxEntries, s.Limits.Flows)))
	d.doLocked(func(w *worker) { w.apply(next, gone) })
	d.offload.advance() // flows whose backend may get no more datagrams move with their next one
	for at, group := range gone {
		delete(d.groups, at)
		_ = group.Close()
	}
	for at, group := range opened {
		d.groups[at] = group
	}
	d.watch.know(next)
	d.watch.retain(func(dest *destination) bool {
		kept := dest.usage.Load() > 0 || next.serving(dest) != nil
		if !kept {
			d.offload.free(dest)
		}
		return kept
	})
	return nil
}

// listenLocked makes every worker read its sockets of the groups. If one worker cannot, none does and the groups are closed,
// because the kernel would otherwise continue to give that worker its share of the clients.
func (d *Datapath) listenLocked(opened map[netip.AddrPort]*udpio.Group) error {
	var failed error
	d.doLocked(func(w *worker) {
		for at, group := range opened {
			if err := w.listen(at, group.Conn(w.id)); err != nil {
				failed = cmp.Or(failed, fmt.Errorf("watch the socket of %s: %w", at, err))
			}
		}
	})
	if failed == nil {
		return nil
	}
	d.doLocked(func(w *worker) { w.unlisten(opened) })
	for _, group := range opened {
		_ = group.Close()
	}
	return failed
}

// apply is the worker's part of Apply.
func (w *worker) apply(next *view, gone map[netip.AddrPort]*udpio.Group) {
	w.flush()
	w.engine.SetSnapshot(next.snapshot)
	w.shortestIdle = next.shortestIdle
	w.lastBackend, w.lastDest = nil, nil
	w.unlisten(gone)
	w.closeWhere(func(e *entry) bool {
		service := next.snapshot.Service(e.service)
		if service == nil {
			return true
		}
		e.idle = service.Timeouts.UDP
		return false
	})
}

// unlisten removes the sockets of the groups and every entry that replies through them.
func (w *worker) unlisten(gone map[netip.AddrPort]*udpio.Group) {
	for i, l := range w.listeners {
		if l != nil && gone[l.addr] != nil {
			w.listeners[i] = nil
			w.closeWhere(func(e *entry) bool { return e.listener == l })
			w.faults.dropHeld(l)
		}
	}
}

func (w *worker) listen(at netip.AddrPort, conn *udpio.Conn) error {
	number := 0
	for number < len(w.listeners) && w.listeners[number] != nil {
		number++
	}
	if number == len(w.listeners) {
		w.listeners = append(w.listeners, nil)
	}
	l := &listener{addr: at, conn: conn, out: make([]udpio.Message, 0, batchSize)}
	if err := w.poller.AddConn(conn, workers.OwnTokens|uint64(number)); err != nil {
		return err
	}
	w.listeners[number] = l
	return nil
}

func (w *worker) closeWhere(match func(*entry) bool) (n int) {
	for e := w.table.head.next; e != &w.table.head; {
		next := e.next
		if match(e) {
			w.counters.Cleared++
			w.close(e)
			n++
		}
		e = next
	}
	return n
}

// do runs f in every worker, one after the other, and waits.
func (d *Datapath) do(f func(*worker)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doLocked(f)
}

func (d *Datapath) doLocked(f func(*worker)) {
	if !d.closed {
		d.group.Do(f)
	}
}

// Respond returns when every worker has answered: a watchdog calls it.
func (d *Datapath) Respond() { d.do(func(*worker) {}) }

// Run forwards until ctx ends, and then returns nil. It returns an error if a worker cannot continue.
func (d *Datapath) Run(ctx context.Context) error {
	return d.group.Run(ctx, d.beginLocked, (*worker).run, d.observe)
}

func (d *Datapath) beginLocked() error {
	if d.group.Running() || d.closed {
		return errors.New("run the udp data path: it runs already, or is closed")
	}
	return nil
}

// Close frees every socket. Run must have returned.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.group.Running() {
		return errors.New("close the udp data path: it still runs")
	}
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	for _, w := range d.workers {
		w.closeWhere(func(*entry) bool { return true })
		w.poller.Close()
	}
	for _, group := range d.groups {
		errs = append(errs, group.Close())
	}
	return errors.Join(errs...)
}

const (
	watchInterval = 200 * time.Millisecond
	logInterval   = 10 * time.Second
)

// observe checks the backends and logs problems, at most once every logInterval.
func (d *Datapath) observe(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	d.fills.Becomes(0, d.config.Now())
	var logged Counters
	nextLog := d.config.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.revived:
		case <-ticker.C:
		}
		now := d.config.Now()
		d.countOffload(now)
		d.judge(now)
		if now >= nextLog {
			nextLog = now + logInterval
			logged = d.complain(logged)
		}
	}
}

// revive notifies the watching goroutine that a backend answers again.
func (d *Datapath) revive(*destination) {
	select {
	case d.revived <- struct{}{}:
	default:
	}
}

// judge runs the watch and reports changes to OnLiveness.
func (d *Datapath) judge(now time.Duration) {
	v := d.view.Load()
	fallen := d.watch.check(now, func(dest *destination) (live, takesNew bool) {
		b := v.serving(dest)
		return b != nil && b.State != lb.Down, b != nil && b.TakesNew()
	})
	for _, dest := range fallen {
		d.config.Log.Warn("backend is silent", "service", dest.target.Service, "backend", dest.target.Backend,
			"address", dest.addr.String(), "unanswered", dest.unanswered.Load(), "refused", dest.refused.Load())
	}
	if len(fallen) > 0 {
		d.mu.Lock()
		d.fallen += uint64(len(fallen))
		d.mu.Unlock()
	}
	if d.config.OnLiveness == nil {
		return
	}
	silent := map[lb.Target]bool{}
	for _, dest := range d.watch.destinations() {
		if v.serving(dest) != nil {
			silent[dest.target] = silent[dest.target] || !dest.is(Active)
		}
	}
	for target, now := range silent {
		if d.reported[target] != now {
			d.reported[target] = now
			if !now {
				d.config.Log.Info("backend answers again", "service", target.Service, "backend", target.Backend)
			}
			d.config.OnLiveness(target, now)
		}
	}
	for target := range d.reported {
		if _, known := silent[target]; !known {
			if d.reported[target] { // also for a backend that was removed: it may come back
				d.config.OnLiveness(target, false)
			}
			delete(d.reported, target)
		}
	}
}

// complain logs the problems whose counters have grown since the last time.
func (d *Datapath) complain(before Counters) Counters {
	stats := d.Stats()
	now := stats.Counters
	for _, trouble := range []struct {
		text        string
		before, now uint64
		remedy      string
	}{
		{"out of file descriptors or ports for NAT entries", before.Exhausted, now.Exhausted, "raise ulimit -n or net.ipv4.ip_local_port_range, or lower --max-entries"},
		{"datagrams lost before they were read", before.ReceiveOverflows, now.ReceiveOverflows, "raise net.core.rmem_max, or use more cores"},
		{"sends to backends refused by the kernel", before.SendErrors, now.SendErrors, "see weir's counters and the routes"},
		{"reads that failed", before.ReceiveErrors, now.ReceiveErrors, "see weir's counters and the kernel's log"},
		{"sends to clients refused by the kernel", before.ReplyErrors, now.ReplyErrors, "see weir's counters and the routes"},
	} {
		if trouble.now > trouble.before {
			d.config.Log.Warn(trouble.text, "event", "nat_trouble", "count", trouble.now-trouble.before, "total", trouble.now, "remedy", trouble.remedy)
		}
	}
	if d.fills.Becomes(now.EntriesFull+now.Evicted, d.config.Now()) {
		d.config.Log.Warn("flow table full; it counts as full until no flow had to make room for a minute", "flows", stats.Entries, "of", stats.MaxEntries,
			"evicted", now.Evicted, "refused", now.EntriesFull, "remedy", "a greater limits.flows (weir nat run: --max-entries); see whether a source floods")
	}
	return now
}
