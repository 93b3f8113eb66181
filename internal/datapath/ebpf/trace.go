package ebpf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/maps"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// TraceFilter says which packets a trace wants. The kernel applies it.
type TraceFilter struct {
	Service string       // "": any, and none
	Reasons []lb.Reason  // none: every reason
	Prefix  netip.Prefix // of the source; invalid: any
	Both    bool         // Prefix may be the destination's too
}

// Traced is one packet and what became of it.
type Traced struct {
	Time                time.Time
	Interface           string
	Reason              lb.Reason
	Service, Backend    string // "": none
	Protocol            uint8
	Source, Destination netip.AddrPort // of the flow; ICMP errors: of the flow they quote
	New                 bool           // made an entry
	Length              int            // of the frame
	Data                []byte         // its head, as it came; valid until the next call
}

// traceLease is how long the programs serve a tracer that says nothing more.
const traceLease = 3 * time.Second

// Trace calls each for packets of the data path at a pin path, until it returns
// false or ctx ends. It works on the pinned tables, whether weir runs or not. lost
// counts packets that came faster than they were taken.
func Trace(ctx context.Context, path string, filter TraceFilter, each func(*Traced) bool) (lost uint64, err error) {
	t, err := openTracer(path)
	if err != nil {
		return 0, err
	}
	defer t.close()
	if err := t.start(&filter); err != nil {
		return 0, err
	}
	defer t.stop()
	err = t.read(ctx, each)
	return atomic.LoadUint64(&t.filter.Lost), err
}

// beforeHold bounds how long a weir that starts takes until it holds its pin path: nothing shows until then that it has started.
const beforeHold = time.Second

// Await returns once the tables at a pin path can be traced, or when no start is under way that could make them. starting is
// called once if it has to wait for a weir that is starting: one holds the pin path, and tables are missing. One that was started in this
// very instant does not hold it yet, so an absence counts after a second only.
func Await(ctx context.Context, path string, starting func()) error {
	begun := time.Now()
	for seen := false; ; {
		t, err := openTracer(path)
		if err == nil {
			t.close()
		}
		starts := held(path)
		if !errors.Is(err, os.ErrNotExist) || !starts && (seen || time.Since(begun) >= beforeHold) {
			return nil // Trace says what is wrong
		}
		if starts && !seen {
			seen = true
			starting()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// held says whether a process holds a pin path.
func held(path string) bool {
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close()
	return pins.LockHolder(dir) > 0 // a lock of our own, however short, could stop a weir that starts
}

// absent is the error for a data path that is not there (yet).
type absent struct{ error }

func (absent) Is(target error) bool { return target == os.ErrNotExist }

// tracer is an open trace.
type tracer struct {
	pins    *pins.Dir
	lock    *os.File
	store   *pins.Store
	control *bpf.Control
	filter  *bpf.TraceFilter
	ring    *ebpf.Map
	reader  *ringbuf.Reader
	closing []func()
	fixture pins.Fixture

	names      map[uint16]string
	backends   map[uint16]string // by slot
	numbers    map[string]uint16
	generation uint32
	interfaces map[uint32]string
	since      uint64        // CLOCK_MONOTONIC at the start
	epoch      time.Duration // from CLOCK_MONOTONIC to the wall clock
}

func openTracer(path string) (t *tracer, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("pin path: %w", err)
	}
	t = &tracer{pins: &pins.Dir{Path: path}, interfaces: map[uint32]string{}}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	// The folder of maps, not the one above that the running weir locks.
	t.lock, err = os.Open(t.pins.MapsDir())
	if errors.Is(err, os.ErrNotExist) {
		return t, absent{fmt.Errorf("no data path is kept at %s; weir lb run --datapath ebpf makes one, --pin-path names another place; a weir with --datapath nfqueue is queried at --admin", path)}
	} else if err != nil {
		return t, fmt.Errorf("pin path: %w", err)
	}
	switch err := unix.Flock(int(t.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return t, fmt.Errorf("one trace at a time: %s has it", pins.HolderName(t.lock))
	case err != nil:
		return t, fmt.Errorf("lock %s: %w", t.pins.MapsDir(), err)
	}
	if t.store, err = pins.LoadStore(t.pins, nil); err != nil {
		return t, fmt.Errorf("pin path %s: %w", path, err)
	}
	if err := t.store.Read(pins.FixtureText, &t.fixture); err != nil {
		return t, fmt.Errorf("pin path %s: %w", path, err)
	}
	if own, _, err := pins.LayoutOf(t.fixture.Limits); err != nil || own != t.fixture.ABI {
		return t, errors.Join(err, fmt.Errorf("another build of weir made what is pinned at %s; trace with that one, or restart weir lb run with this one first", path))
	}
	return t, t.mapTables()
}

func (t *tracer) mapTables() error {
	for name, to := range map[string]func([]byte){
		bpf.MapControls:     func(b []byte) { t.control = (*bpf.Control)(unsafe.Pointer(&b[0])) },
		bpf.MapTraceFilters: func(b []byte) { t.filter = (*bpf.TraceFilter)(unsafe.Pointer(&b[0])) },
	} {
		m, err := ebpf.LoadPinnedMap(t.pins.MapAt(name), nil)
		if err != nil {
			return fmt.Errorf("open map %s: %w", name, err)
		}
		t.closing = append(t.closing, func() { m.Close() })
		b, err := unix.Mmap(m.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("map %s into memory: %w", name, err)
		}
		t.closing = append(t.closing, func() { unix.Munmap(b) })
		to(b)
	}
	var err error
	if t.ring, err = ebpf.LoadPinnedMap(t.pins.MapAt(bpf.MapTraces), nil); err != nil {
		return fmt.Errorf("open map %s: %w", bpf.MapTraces, err)
	}
	if t.reader, err = ringbuf.NewReader(t.ring); err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MapTraces, err)
	}
	return t.learn()
}

func (t *tracer) close() {
	if t.reader != nil {
		t.reader.Close()
	}
	if t.ring != nil {
		t.ring.Close()
	}
	t.store.Close()
	for _, f := range t.closing {
		f()
	}
	if t.lock != nil {
		_ = unix.Flock(int(t.lock.Fd()), unix.LOCK_UN) // a child between fork and exec has the descriptor, too
		t.lock.Close()
	}
}

// learn reads the names of the generation in force.
func (t *tracer) learn() error {
	t.generation = atomic.LoadUint32(&t.control.Active) & 1
	var text pins.Generation
	if err := t.store.Read(t.generation, &text); err != nil {
		return fmt.Errorf("names: %w", err)
	}
	t.names, t.backends, t.numbers = map[uint16]string{}, map[uint16]string{}, map[string]uint16{}
	for _, s := range text.Services {
		t.names[s.Number], t.numbers[s.Name] = s.Name, s.Number
		for _, b := range s.Backends {
			t.backends[b.Slot] = b.Name
		}
	}
	return nil
}

// start writes the filter and lets the programs begin.
func (t *tracer) start(filter *TraceFilter) error {
	var f bpf.TraceFilter
	if filter.Service != "" {
		number, ok := t.numbers[filter.Service]
		if !ok {
			return fmt.Errorf("no service %q; weir lb show lists them", filter.Service)
		}
		f.Service = uint32(number)
	}
	for _, reason := range filter.Reasons {
		f.Reasons |= 1 << reason
	}
	if len(filter.Reasons) == 0 {
		f.Reasons = ^uint64(0)
	}
	if p := filter.Prefix; p.IsValid() {
		mask := maps.MaskWords(maps.PrefixBits(p))
		f.Addr = maps.AddressWords(p.Masked().Addr())
		f.Mask = [4]uint32{uint32(mask[0]), uint32(mask[0] >> 32), uint32(mask[1]), uint32(mask[1] >> 32)}
		if filter.Both {
			f.Both = 1
		}
	}
	now := monotonic()
	t.since, t.epoch = now, time.Duration(time.Now().UnixNano())-time.Duration(now)
	f.Until = now + uint64(traceLease)
	atomic.StoreUint32(&t.control.Trace, 0)
	maps.Grace() // no program run is left that reads the old filter
	*t.filter = f
	atomic.StoreUint32(&t.control.Trace, 1)
	return nil
}

func (t *tracer) stop() { atomic.StoreUint32(&t.control.Trace, 0) }

func (t *tracer) read(ctx context.Context, each func(*Traced) bool) error {
	defer context.AfterFunc(ctx, func() { t.reader.Flush() })() // SetDeadline would wait for ReadInto itself
	var record ringbuf.Record
	renew := time.Now().Add(traceLease / 3)
	for ctx.Err() == nil {
		t.reader.SetDeadline(renew)
		err := t.reader.ReadInto(&record)
		if now := time.Now(); !now.Before(renew) {
			renew = now.Add(traceLease / 3)
			atomic.StoreUint64(&t.filter.Until, monotonic()+uint64(traceLease))
			if err := t.learn(); err != nil {
				return err
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read trace: %w", err)
		}
		var e bpf.TraceEvent
		if len(record.RawSample) < int(unsafe.Sizeof(e)) {
			return fmt.Errorf("a trace event of %d bytes", len(record.RawSample))
		}
		e = *(*bpf.TraceEvent)(unsafe.Pointer(&record.RawSample[0]))
		if e.Time < t.since {
			continue // of an earlier trace
		}
		if !each(t.traced(&e)) {
			return nil
		}
	}
	return nil
}

func (t *tracer) traced(e *bpf.TraceEvent) *Traced {
	if t.generation != atomic.LoadUint32(&t.control.Active)&1 {
		t.learn()
	}
	p := &Traced{
		Time: time.Unix(0, int64(t.epoch)+int64(e.Time)), Interface: t.interfaceName(e.Ifindex), Reason: lb.Reason(e.Reason),
		Protocol: e.Key.Proto, New: e.Opened != 0, Length: int(e.Length), Data: e.Data[:min(int(e.Captured), len(e.Data))],
		Source:      netip.AddrPortFrom(maps.Address(e.Key.Src), maps.Swap16(e.Key.Sport)),
		Destination: netip.AddrPortFrom(maps.Address(e.Key.Dst), maps.Swap16(e.Key.Dport)),
	}
	if e.Service != 0 {
		if p.Service = t.names[uint16(e.Service)]; p.Service == "" {
			p.Service = fmt.Sprintf("(removed service %d)", e.Service)
		}
	}
	if e.Backend != 0 {
		if p.Backend = t.backends[uint16(e.Backend-1)]; p.Backend == "" {
			p.Backend = "(removed)"
		}
	}
	return p
}

// interfaceName asks, once for each, in the data path's namespace.
func (t *tracer) interfaceName(index uint32) string {
	name, ok := t.interfaces[index]
	if !ok {
		name = fmt.Sprintf("interface %d", index)
		attach.InNamespaceOf(t.fixture.Netns, func() error {
			l, err := netlink.LinkByIndex(int(index))
			if err == nil {
				name = l.Attrs().Name
			}
			return err
		})
		t.interfaces[index] = name
	}
	return name
}

// monotonic is the clock of bpf_ktime_get_ns.
func monotonic() uint64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// endTrace switches off what a tracer that ended left on.
func (d *Datapath) endTrace() {
	if atomic.LoadUint32(&d.tables.Control.Trace) == 0 {
		return
	}
	var f bpf.TraceFilter
	if err := d.tables.Maps[bpf.MapTraceFilters].Lookup(uint32(0), &f); err == nil && f.Until < monotonic() {
		atomic.CompareAndSwapUint32(&d.tables.Control.Trace, 1, 0)
	}
}
