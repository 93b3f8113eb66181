package nexthop

import (
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
	following atomic.Bool // events are followed now

	mu      sync.Mutex
	watched map[netip.Addr]*watch
	uses    map[use]int                              // how many of those go to a neighbour
	freed   bool                                     // a neighbour may be used no more
	passes  int                                      // over what is watched
	named   int                                      // addresses so far
	seen    map[listing]map[netip.Addr]netlink.Neigh // neighbours read in the pass at hand
	links   map[int]netlink.Link                     // likewise
	changed chan struct{}
	onRoute func() // routes, neighbours or links changed
	// onPath is onRoute without the changes of neighbours, which are much more frequent.
	onPath func()
	// onManage is called with a neighbour before it is made a managed one.
	onManage func(index int, address netip.Addr) error
}

// listing identifies one list of neighbours.
type listing struct{ index, family int }

// use is a neighbour.
type use struct {
	index   int
	address netip.Addr
}

type watch struct {
	number    int // spreads the look-ups of routes over the passes
	path      Hop // as hop, without the neighbour's state
	hop       Hop
	logged    State // the last state in the log
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
	return &Table{log: log, handle: h, namespace: ns, buffer: receiveBuffer, watched: map[netip.Addr]*watch{}, uses: map[use]int{}, freed: true, changed: make(chan struct{}, 1)}, nil
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
	return t.uses[use{index, neighbour}] > 0
}

// Freed reports whether a neighbour may have come out of use since the last call, or since before the first.
func (t *Table) Freed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	freed := t.freed
	t.freed = false
	return freed
}

// setLocked sets the hop of a watch.
func (t *Table) setLocked(w *watch, hop Hop) {
	if hop.IfIndex != w.hop.IfIndex || hop.Neighbor != w.hop.Neighbor {
		t.unuseLocked(w)
		t.uses[use{hop.IfIndex, hop.Neighbor}]++
	}
	w.hop = hop
}

// unuseLocked takes what a watch uses from uses.
func (t *Table) unuseLocked(w *watch) {
	was := use{w.hop.IfIndex, w.hop.Neighbor}
	if t.uses[was]--; t.uses[was] <= 0 {
		delete(t.uses, was)
		t.freed = t.freed || was.index != 0
	}
}

// Watch reports the hop of each address at once and at every change, one call at a time per address. Addresses watched before
// and not named are forgotten; the others are looked up again only where Run does not follow what becomes of them.
func (t *Table) Watch(addresses map[netip.Addr]func(Hop)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.watched {
		if addresses[a] == nil {
			t.unuseLocked(t.watched[a])
			delete(t.watched, a)
		}
	}
	defer t.beginLocked()()
	following := t.following.Load()
	for a, report := range addresses {
		w := t.watched[a]
		if w == nil {
			t.named++
			w = &watch{number: t.named}
			t.watched[a] = w
			t.uses[use{}]++
		}
		w.report = report
		if w.path == (Hop{}) || !following {
			w.path = t.pathLocked(a)
			t.setLocked(w, t.resolveLocked(w))
			w.logged = w.hop.State
		}
		report(w.hop)
	}
}

// WaitResolved waits, at most so long, until no watched address is Unknown.
func (t *Table) WaitResolved(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		t.refresh(noRoutes, false)
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
	defer t.beginLocked()()
	hop := t.resolveLocked(&watch{path: t.pathLocked(a), requested: time.Now()})
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
