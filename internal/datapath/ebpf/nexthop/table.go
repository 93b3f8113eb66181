package nexthop

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// State says whether a hop can be used.
type State uint8

const (
	Unknown State = iota // not resolved yet
	Ready
	Failed // no route, link down, or the neighbour does not answer
)

// Hop is how packets reach an address. Comparable.
type Hop struct {
	State    State
	IfIndex  int
	MTU      int     // of the route, bytes of an IP packet
	Link     [6]byte // of the next hop
	From     [6]byte // of the interface
	Neighbor netip.Addr
}

// Table resolves watched addresses. All methods are safe for concurrent use.
type Table struct {
	log       *slog.Logger
	handle    *netlink.Handle
	namespace netns.NsHandle
	buffer    int         // receiveBuffer, less in tests
	followed  atomic.Bool // events were followed at least once

	mu      sync.Mutex
	watched map[netip.Addr]*watch
	seen    map[listing][]netlink.Neigh // neighbours read in the pass at hand
	changed chan struct{}
	onRoute func() // routes, neighbours or links changed
	// onPath is onRoute without the changes of neighbours, which are much more frequent.
	onPath func()
	// onManage is called with a neighbour before it is made a managed one.
	onManage func(index int, address netip.Addr) error
}

// listing identifies one list of neighbours.
type listing struct{ index, family int }

type watch struct {
	hop       Hop
	report    func(Hop)
	requested time.Time // when the neighbour was last requested
}

// Retry is how often a failed neighbour is probed again.
const Retry = 2 * time.Second

// Open opens netlink in the network namespace of the calling thread.
func Open(log *slog.Logger) (*Table, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	ns, err := netns.Get()
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("name the network namespace: %w", err)
	}
	return &Table{log: log, handle: h, namespace: ns, buffer: receiveBuffer, watched: map[netip.Addr]*watch{}, changed: make(chan struct{}, 1)}, nil
}

// Close closes netlink.
func (t *Table) Close() {
	t.handle.Close()
	t.namespace.Close()
}

// OnChange sets what is called, from Run, after any change of routes.
func (t *Table) OnChange(f func()) {
	t.mu.Lock()
	t.onRoute = f
	t.mu.Unlock()
}

// OnRoutes sets what is called, from Run, after any change of routes, addresses or links, but not after one of neighbours.
func (t *Table) OnRoutes(f func()) {
	t.mu.Lock()
	t.onPath = f
	t.mu.Unlock()
}

// OnManage sets what is called with each neighbour before the kernel is asked to
// manage it; its error prevents that.
func (t *Table) OnManage(f func(index int, address netip.Addr) error) {
	t.mu.Lock()
	t.onManage = f
	t.mu.Unlock()
}

// Uses reports whether packets of some watched address go to this neighbour.
func (t *Table) Uses(index int, neighbour netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.watched {
		if w.hop.IfIndex == index && w.hop.Neighbor == neighbour {
			return true
		}
	}
	return false
}

// Watch resolves each address now and reports its hop at once and at every
// change, one call at a time per address. Addresses watched before and not
// named are forgotten.
func (t *Table) Watch(addresses map[netip.Addr]func(Hop)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.watched {
		if addresses[a] == nil {
			delete(t.watched, a)
		}
	}
	t.seen = map[listing][]netlink.Neigh{}
	defer func() { t.seen = nil }()
	for a, report := range addresses {
		w := t.watched[a]
		if w == nil {
			w = &watch{}
			t.watched[a] = w
		}
		w.report = report
		w.hop = t.resolveLocked(a, w)
		report(w.hop)
	}
}

// WaitResolved waits, at most so long, until no watched address is Unknown.
func (t *Table) WaitResolved(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		t.refresh(false)
		if !t.unknown() {
			return
		}
	}
}

func (t *Table) unknown() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.watched {
		if w.hop.State == Unknown {
			return true
		}
	}
	return false
}

// Probe has the kernel resolve the neighbour toward an address once.
func (t *Table) Probe(a netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hop := t.resolveLocked(a, &watch{requested: time.Now()})
	if hop.State == Ready || hop.IfIndex == 0 {
		return
	}
	family := unix.AF_INET
	if hop.Neighbor.Is6() {
		family = unix.AF_INET6
	}
	n := &netlink.Neigh{LinkIndex: hop.IfIndex, Family: family, IP: net.IP(hop.Neighbor.AsSlice()), Flags: netlink.NTF_USE, State: unix.NUD_NONE}
	if err := t.handle.NeighSet(n); err != nil {
		t.log.Warn("resolve neighbour", "address", hop.Neighbor, "error", err)
	}
}

// Source returns the source address that the kernel would use toward an address.
func (t *Table) Source(to netip.Addr) (netip.Addr, bool) {
	routes, err := t.handle.RouteGet(net.IP(to.AsSlice()))
	if err != nil || len(routes) == 0 {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(routes[0].Src)
	return a.Unmap(), ok
}

// Here reports whether the calling thread is in a network namespace. Where it is, sockets are opened without entering it,
// which would need CAP_SYS_ADMIN.
func Here(ns netns.NsHandle) bool {
	here, err := netns.Get()
	if err != nil {
		return false
	}
	defer here.Close()
	return here.Equal(ns)
}

// Followed reports whether Run has followed the kernel's events.
func (t *Table) Followed() bool { return t.followed.Load() }

// Run follows the kernel's events until ctx ends. Where the kernel drops some
// because they came too fast (ENOBUFS), it subscribes again and looks up all next hops.
func (t *Table) Run(ctx context.Context) error {
	for {
		lost, err := t.follow(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		t.log.Debug("events of the kernel were lost: all next hops are looked up again", "error", lost)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

const (
	again         = 100 * time.Millisecond // between two attempts to follow events
	receiveBuffer = 1 << 20                // bytes of events that the kernel keeps for us
)

// events are the kernel's messages about routes, neighbours and links.
type events struct {
	routes     chan netlink.RouteUpdate
	neighbours chan netlink.NeighUpdate
	links      chan netlink.LinkUpdate
	failed     chan error // the first error of a subscription
	done       chan struct{}
	begun      []func() // for each subscription: wait until it closes its channel
}

// subscribe requests events from the kernel. The caller calls end, also after an error.
func (t *Table) subscribe() (*events, error) {
	e := &events{
		routes: make(chan netlink.RouteUpdate, 64), neighbours: make(chan netlink.NeighUpdate, 64), links: make(chan netlink.LinkUpdate, 64),
		failed: make(chan error, 3), done: make(chan struct{}),
	}
	failed := func(err error) {
		select {
		case e.failed <- err:
		default:
		}
		t.poke()
	}
	var namespace *netns.NsHandle // nil: the one that we are in
	if !Here(t.namespace) {
		namespace = &t.namespace
	}
	if err := netlink.RouteSubscribeWithOptions(e.routes, e.done, netlink.RouteSubscribeOptions{
		Namespace: namespace, ErrorCallback: failed, ReceiveBufferSize: t.buffer, ReceiveBufferForceSize: true,
	}); err != nil {
		return e, fmt.Errorf("follow routes: %w", err)
	}
	e.begun = append(e.begun, func() { empty(e.routes) })
	if err := netlink.NeighSubscribeWithOptions(e.neighbours, e.done, netlink.NeighSubscribeOptions{
		Namespace: namespace, ErrorCallback: failed, ReceiveBufferSize: t.buffer, ReceiveBufferForceSize: true,
	}); err != nil {
		return e, fmt.Errorf("follow neighbours: %w", err)
	}
	e.begun = append(e.begun, func() { empty(e.neighbours) })
	if err := netlink.LinkSubscribeWithOptions(e.links, e.done, netlink.LinkSubscribeOptions{
		Namespace: namespace, ErrorCallback: failed, ReceiveBufferSize: t.buffer, ReceiveBufferForceSize: true,
	}); err != nil {
		return e, fmt.Errorf("follow links: %w", err)
	}
	e.begun = append(e.begun, func() { empty(e.links) })
	return e, nil
}

// end waits until the subscriptions have closed their channels, which they do once they are not blocked in a send.
func (e *events) end() {
	close(e.done)
	for _, wait := range e.begun {
		wait()
	}
}

// follow returns why events ended, if not by ctx.
func (t *Table) follow(ctx context.Context) (lost error, err error) {
	e, err := t.subscribe()
	defer e.end()
	if err != nil {
		return nil, err
	}
	t.followed.Store(true)
	t.refresh(true) // what changed before the subscriptions
	t.pathsChanged()
	ticker := time.NewTicker(Retry)
	defer ticker.Stop()
	for {
		open, paths := true, true
		select {
		case <-ctx.Done():
			return nil, nil
		case _, open = <-e.routes:
		case _, open = <-e.neighbours:
			paths = false
		case _, open = <-e.links:
		case <-t.changed:
		case <-ticker.C:
			t.refresh(false)
			continue
		}
		if open {
			var more bool
			more, open = drain(e.routes, e.neighbours, e.links)
			paths = paths || more
		}
		if !open {
			select {
			case lost = <-e.failed:
			default:
			}
			return lost, nil
		}
		t.refresh(true)
		if paths {
			t.pathsChanged()
		}
	}
}

func (t *Table) pathsChanged() {
	t.mu.Lock()
	f := t.onPath
	t.mu.Unlock()
	if f != nil {
		f()
	}
}

// empty receives until the sender closes the channel.
func empty[E any](c <-chan E) {
	for range c {
	}
}

// drain takes what else is there: one refresh serves a burst of events. It reports whether routes or links were among them,
// and whether all channels are open.
func drain(a chan netlink.RouteUpdate, b chan netlink.NeighUpdate, c chan netlink.LinkUpdate) (paths, open bool) {
	for {
		open = true
		select {
		case _, open = <-a:
			paths = true
		case _, open = <-b:
		case _, open = <-c:
			paths = true
		default:
			return paths, true
		}
		if !open {
			return paths, false
		}
	}
}

func (t *Table) poke() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

func (t *Table) refresh(event bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = map[listing][]netlink.Neigh{}
	defer func() { t.seen = nil }()
	for a, w := range t.watched {
		hop := t.resolveLocked(a, w)
		if hop == w.hop {
			continue
		}
		if hop.State != w.hop.State {
			t.log.Info("next hop", "of", a, "state", hop.State.String(), "neighbour", hop.Neighbor)
		}
		w.hop = hop
		w.report(hop)
	}
	if event && t.onRoute != nil {
		t.onRoute()
	}
}

func (s State) String() string { return [...]string{"unknown", "ready", "failed"}[s] }

// resolveLocked queries the kernel's routes and neighbours.
func (t *Table) resolveLocked(a netip.Addr, w *watch) Hop {
	routes, err := t.handle.RouteGet(net.IP(a.AsSlice()))
	if err != nil || len(routes) == 0 || routes[0].LinkIndex == 0 {
		return Hop{State: Failed}
	}
	r := routes[0]
	link, err := t.handle.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Hop{State: Failed}
	}
	attrs := link.Attrs()
	hop := Hop{IfIndex: r.LinkIndex, MTU: attrs.MTU, Neighbor: a}
	if r.MTU > 0 && r.MTU < hop.MTU {
		hop.MTU = r.MTU
	}
	copy(hop.From[:], attrs.HardwareAddr)
	if via, ok := netip.AddrFromSlice(r.Gw); ok && !via.IsUnspecified() {
		hop.Neighbor = via.Unmap()
	} else if r.Via != nil {
		if v, ok := r.Via.(*netlink.Via); ok {
			if via, ok := netip.AddrFromSlice(v.Addr); ok {
				hop.Neighbor = via.Unmap()
			}
		}
	}
	if attrs.Flags&net.FlagUp == 0 {
		hop.State = Failed
		return hop
	}
	if attrs.Flags&net.FlagLoopback != 0 {
		hop.State = Failed // a backend on this very machine: not by redirect
		return hop
	}
	t.neighbour(&hop, w)
	return hop
}

// neighbours lists those of an interface, once in each pass over what is watched.
func (t *Table) neighbours(at listing) ([]netlink.Neigh, error) {
	if list, ok := t.seen[at]; ok {
		return list, nil
	}
	list, err := t.handle.NeighList(at.index, at.family)
	if err == nil && t.seen != nil {
		t.seen[at] = list
	}
	return list, err
}

// neighbour fills in the link address, and requests it where it is missing.
func (t *Table) neighbour(hop *Hop, w *watch) {
	family := unix.AF_INET
	if hop.Neighbor.Is6() {
		family = unix.AF_INET6
	}
	list, err := t.neighbours(listing{hop.IfIndex, family})
	if err == nil {
		for _, n := range list {
			a, _ := netip.AddrFromSlice(n.IP)
			if a.Unmap() != hop.Neighbor {
				continue
			}
			switch {
			case n.State&(unix.NUD_FAILED|unix.NUD_INCOMPLETE) != 0 || len(n.HardwareAddr) != 6:
				if n.State&unix.NUD_FAILED != 0 {
					hop.State = Failed
				}
			default:
				copy(hop.Link[:], n.HardwareAddr)
				hop.State = Ready
				if n.State&unix.NUD_PERMANENT != 0 || n.FlagsExt&netlink.NTF_EXT_MANAGED != 0 {
					return
				}
			}
			break
		}
	}
	if now := time.Now(); now.Sub(w.requested) >= Retry {
		w.requested = now
		t.manage(hop, family)
	}
}

// manage makes the kernel keep a neighbour resolved by itself.
func (t *Table) manage(hop *Hop, family int) {
	n := &netlink.Neigh{
		LinkIndex: hop.IfIndex, Family: family, IP: net.IP(hop.Neighbor.AsSlice()),
		State: unix.NUD_NONE, FlagsExt: netlink.NTF_EXT_MANAGED,
	}
	if t.onManage != nil {
		if err := t.onManage(hop.IfIndex, hop.Neighbor); err != nil {
			t.log.Warn("note neighbour", "address", hop.Neighbor, "error", err)
			return
		}
	}
	if err := t.handle.NeighSet(n); err != nil {
		// Older kernels: probe once; the ticker asks again.
		n.FlagsExt, n.Flags, n.State = 0, netlink.NTF_USE, unix.NUD_NONE
		if err := t.handle.NeighSet(n); err != nil {
			t.log.Warn("resolve neighbour", "address", hop.Neighbor, "error", err)
		}
	}
}
