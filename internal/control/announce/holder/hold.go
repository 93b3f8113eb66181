package holder

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/control/announce/neighbour"
	"github.com/weir-lb/weir/internal/control/announce/vrrp"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// lifetime of an address on the interface: as long as others wait for this router, and not less than a busy machine needs to renew it.
func (r *router) lifetime() time.Duration {
	return max(5*time.Second, (3*r.config.Interval + 2*time.Second).Truncate(time.Second))
}

// hold puts the addresses on the interface, renews them, and removes those that are no longer wanted.
func (r *router) hold() {
	for _, address := range r.held {
		if !slices.Contains(r.want.addresses, address) {
			r.give(address)
		}
	}
	added := slices.ContainsFunc(r.want.addresses, func(a netip.Addr) bool { return !slices.Contains(r.held, a) })
	r.held = r.want.addresses
	for _, address := range r.held {
		if err := r.keep(address); err != nil {
			r.counters.holdErrors.Add(1)
			r.log.Error("vrrp: hold address", "address", address.String(), "error", err)
		}
	}
	r.plan.renew = time.Now().Add(r.lifetime() / 3)
	if added {
		r.plan.begin(time.Now())
		r.announce(burst)
	}
}

func (r *router) keep(address netip.Addr) error {
	switch {
	case r.key.hold == lb.HoldARP && r.key.is6:
		if err := r.conn.join(r.device(), address); err != nil && !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
		return nil
	case r.key.hold == lb.HoldARP || r.owns(address):
		return nil
	}
	return add(r.at.index, address, r.lifetime())
}

// owns reports whether this router is the owner of an address that is on the interface without this program.
func (r *router) owns(address netip.Addr) bool {
	if !r.key.owner {
		return false
	}
	present, err := list(r.at.index, r.key.is6)
	return err == nil && slices.ContainsFunc(present, func(h held) bool { return h.address == address && !h.own })
}

// release gives all addresses up.
func (r *router) release() {
	for _, address := range r.held {
		r.give(address)
	}
	r.held, r.plan = nil, plan{}
}

func (r *router) give(address netip.Addr) {
	var err error
	switch {
	case r.key.hold == lb.HoldARP && r.key.is6:
		// Addresses that end alike share a group: hold joins it again for those that stay.
		if err = r.conn.leave(r.device(), address); errors.Is(err, unix.EADDRNOTAVAIL) {
			err = nil
		}
	case r.key.hold == lb.HoldARP || r.owns(address):
	default:
		err = remove(r.at.index, address)
	}
	if err != nil {
		r.counters.holdErrors.Add(1)
		r.log.Error("vrrp: give address up", "address", address.String(), "error", err)
	}
}

func (r *router) device() *net.Interface {
	return &net.Interface{Index: r.at.index, Name: r.key.device}
}

// due is when tick has something to do.
func (r *router) due() time.Time {
	at := r.machine.Due()
	for _, t := range []time.Time{r.plan.announce, r.plan.renew} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if at.IsZero() {
		return time.Now().Add(time.Hour)
	}
	return at
}

func (r *router) tick(now time.Time) {
	r.act(r.machine.Tick(now))
	if r.machine.State() != vrrp.Active {
		return
	}
	if !now.Before(r.plan.renew) {
		r.hold()
	}
	if !now.Before(r.plan.announce) {
		r.announce(r.plan.next(now))
		r.probe()
	}
}

// announce tells hosts and switches n times where the addresses are.
func (r *router) announce(n int) {
	r.plan.announced = time.Now()
	for range n {
		for _, address := range r.held {
			for _, frame := range neighbour.Announcement(r.at.mac, address) {
				r.sendFrame(frame, &r.counters.announcements)
			}
		}
	}
}

// probe asks who else has the addresses.
func (r *router) probe() {
	for _, address := range r.want.addresses {
		r.sendFrame(neighbour.Probe(r.at.mac, r.at.self, address), &r.counters.probes)
	}
}

func (r *router) sendFrame(frame []byte, counter *atomic.Uint64) {
	if err := r.frames.send(frame); err != nil {
		r.counters.sendErrors.Add(1)
		return
	}
	counter.Add(1)
}
