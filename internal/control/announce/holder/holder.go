package holder

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/announce"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Holder runs the virtual routers of a configuration.
type Holder struct {
	log *slog.Logger

	mu      sync.Mutex // guards the rest
	routers map[key]*router
	watch   *watcher // while there are routers
}

var _ announce.Driver = (*Holder)(nil)

// New returns a holder without routers; nil logs nothing.
func New(log *slog.Logger) *Holder {
	return &Holder{log: cmp.Or(log, slog.New(slog.DiscardHandler)), routers: map[key]*router{}}
}

// Apply runs the virtual routers of the settings; each takes part while routes of its addresses are announced. A router that is not
// wanted any more has given its addresses up when Apply returns.
func (h *Holder) Apply(settings *lb.Announce, routes []announce.Route) error {
	want := map[key]*wanted{}
	if settings != nil {
		for i := range settings.VRRP {
			addWanted(want, &settings.VRRP[i], routes, settings.RequireAll)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(func(k key) bool { return want[k] == nil })
	if h.watch == nil && len(want) > 0 {
		watch, err := newWatcher(h.poke)
		if err != nil {
			return err
		}
		h.watch = watch
	}
	for k, w := range want {
		if r := h.routers[k]; r != nil {
			r.set(w)
		} else {
			h.routers[k] = newRouter(k, w, h.log)
		}
	}
	return nil
}

// addWanted adds the routers of an instance.
func addWanted(want map[key]*wanted, s *lb.VRRP, routes []announce.Route, all bool) {
	idle := ""
	if reason, serves := serves(s.Addresses, routes, all); !serves {
		idle = reason
	}
	for _, is6 := range []bool{false, true} {
		w := &wanted{settings: s, idle: idle}
		for _, a := range s.Addresses {
			if a.Is6() == is6 {
				w.addresses = append(w.addresses, a)
			}
		}
		if len(w.addresses) > 0 {
			want[key{device: s.Interface, id: s.ID, is6: is6, hold: s.Hold, owner: s.Priority == owner}] = w
		}
	}
}

const owner = 255 // the priority

// serves reports whether any of the routes of the addresses is announced, or all are. Otherwise it says why not.
func serves(addresses []netip.Addr, routes []announce.Route, all bool) (reason string, ok bool) {
	serving, idle := 0, []string{}
	for _, route := range routes {
		switch {
		case !slices.ContainsFunc(addresses, route.Prefix.Contains):
		case route.State == announce.Announced:
			serving++
		case !slices.Contains(idle, route.Reason):
			idle = append(idle, route.Reason)
		}
	}
	if serving == 0 || all && len(idle) > 0 {
		return cmp.Or(strings.Join(idle[:min(len(idle), 4)], "; "), "no service has these addresses"), false
	}
	return "", true
}

// endLocked ends routers, and waits until their addresses are given up.
func (h *Holder) endLocked(which func(key) bool) {
	var ending []*router
	for k, r := range h.routers {
		if which(k) {
			r.end()
			ending = append(ending, r)
			delete(h.routers, k)
		}
	}
	for _, r := range ending {
		<-r.done
	}
	if len(h.routers) == 0 && h.watch != nil {
		h.watch.close()
		h.watch = nil
	}
}

// Close gives all addresses up.
func (h *Holder) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(func(key) bool { return true })
}

// poke lets the routers of an interface look at it again, and those that wait for one; 0: all routers.
func (h *Holder) poke(index int, link bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.routers {
		if at := int(r.index.Load()); index == 0 || at == 0 || at == index {
			if link {
				r.relinked.Store(true)
			}
			poke(r.changed)
		}
	}
}

// Describe adds the virtual routers to a status.
func (h *Holder) Describe(status *v1.AnnounceStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.routers {
		status.VRRP = append(status.VRRP, r.describe())
	}
	slices.SortFunc(status.VRRP, func(a, b v1.VirtualRouter) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Family, b.Family))
	})
}
