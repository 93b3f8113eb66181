package holder

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/announce/neighbour"
	"github.com/weir-lb/weir/internal/control/announce/vrrp"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// counters of a router since it was configured.
type counters struct {
	sent, received, dropped, announcements, probes  atomic.Uint64
	sendErrors, receiveErrors, holdErrors, disputes atomic.Uint64
	answers                                         atomic.Uint64
	transitions                                     [3]atomic.Uint64 // by the state that was entered
	refused                                         [len(refusals)]atomic.Uint64
}

// refusals are the reasons for which advertisements are ignored, with their names in metrics.
var refusals = [...]struct {
	err  error
	name string
}{
	{vrrp.ErrVersion, "version"},
	{vrrp.ErrChecksum, "checksum"},
	{errHopLimit, "hop_limit"},
	{vrrp.ErrShort, "length"},
	{vrrp.ErrType, "type"},
	{vrrp.ErrID, "vrid"},
	{vrrp.ErrAddresses, "addresses"},
	{vrrp.ErrInterval, "interval"},
}

func (c *counters) refuse(err error) {
	for i := range refusals {
		if errors.Is(err, refusals[i].err) {
			c.refused[i].Add(1)
		}
	}
}

// condition is what a router shows of itself.
type condition struct {
	state   vrrp.State
	since   time.Time
	reason  string // why it is down
	problem string // what an operator should look at
	peer    vrrp.Peer
}

// claim is what another machine says of an address of the router.
type claim struct {
	mac     neighbour.MAC
	address netip.Addr
	at      time.Time // zero: never
}

// claimLasts is longer than the time between two probes.
const claimLasts = repeatEvery + 30*time.Second

// publish copies what the goroutine knows to where Describe finds it.
func (r *router) publish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.state, r.now.reason, r.now.problem, r.now.peer = vrrp.Down, r.fault, r.problem(), vrrp.Peer{}
	if r.machine != nil {
		r.now.state, r.now.peer = r.machine.State(), r.machine.Peer()
	}
	if r.now.reason == "" && r.now.state == vrrp.Down {
		r.now.reason = r.want.idle
	}
}

func (r *router) problem() string {
	switch {
	case r.fault != "":
		return r.fault
	case r.machine.State() == vrrp.Active && !r.claim.at.IsZero() && time.Since(r.claim.at) < claimLasts:
		return r.dispute()
	}
	return r.differs
}

func (r *router) dispute() string {
	claim := fmt.Sprintf("%s says that %s is there", macText(r.claim.mac), r.claim.address)
	if r.machine.Peer().Address.IsValid() {
		return claim + ": two machines answer for it; if the other one has left VRRP, remove the address there"
	}
	return claim + ", and no advertisement comes: remove the address there, or let VRRP pass (IP protocol 112), or set version 3 there"
}

func macText(mac neighbour.MAC) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5])
}

// meet takes a frame about an address of the router.
func (r *router) meet(f neighbour.Frame) {
	if f.MAC == r.at.mac {
		return
	}
	state := r.machine.State()
	if state == vrrp.Active && r.key.hold == lb.HoldARP && slices.Contains(r.held, f.Address) {
		r.sendFrame(neighbour.Answer(r.at.mac, f), &r.counters.answers)
	}
	c := claim{f.MAC, f.Claimed, time.Now()}
	switch {
	case !slices.Contains(r.want.addresses, f.Claimed):
	case state == vrrp.Active:
		r.disputed(c)
		r.plan.hasten(c.at)
	case state == vrrp.Backup && !r.machine.Peer().Address.IsValid():
		r.early = c // of an active router whose advertisement will come, or not
	}
}

// judge reports, before addresses are held, that a machine which sends no advertisement has them.
func (r *router) judge() {
	if !r.early.at.IsZero() {
		r.disputed(r.early)
		r.early = claim{}
	}
}

func (r *router) disputed(c claim) {
	r.counters.disputes.Add(1)
	r.claim = c
	if c.at.Sub(r.logged) > claimLasts {
		r.logged = c.at
		r.log.Warn("vrrp: another machine claims an address", "address", c.address.String(), "mac", macText(c.mac))
	}
}

// compare looks for addresses that the other router does not have, or has in addition.
func (r *router) compare(p arrived) {
	differs := ""
	if got := p.advertisement.Addresses; !same(got, r.want.addresses) {
		differs = fmt.Sprintf("%s advertises the addresses %v, not %v: configure both alike", p.from, texts(got), texts(r.want.addresses))
	}
	if differs != "" && differs != r.differs {
		r.log.Warn("vrrp: the addresses of the routers differ", "of", p.from.String(), "theirs", texts(p.advertisement.Addresses), "ours", texts(r.want.addresses))
	}
	r.differs = differs
}

func same(a, b []netip.Addr) bool {
	if len(a) != len(b) {
		return false
	}
	for _, address := range a {
		if !slices.Contains(b, address) {
			return false
		}
	}
	return true
}

const maxTexts = 8

func texts(addresses []netip.Addr) (all []string) {
	for _, a := range addresses[:min(len(addresses), maxTexts)] {
		all = append(all, a.String())
	}
	if n := len(addresses) - maxTexts; n > 0 {
		all = append(all, fmt.Sprintf("and %d more", n))
	}
	return all
}

// describe is the router's part of the status.
func (r *router) describe() v1.VirtualRouter {
	r.mu.Lock()
	now, want := r.now, r.next
	r.mu.Unlock()
	c := &r.counters
	s := v1.VirtualRouter{
		Interface: r.key.device, ID: int(r.key.id), Family: familyName(r.key.is6), State: now.state.String(), Since: now.since, Reason: now.reason,
		Problem: now.problem, Priority: int(want.settings.Priority), Interval: want.settings.Interval.Seconds(), Hold: want.settings.Hold.String(),
		Addresses: make([]string, 0, len(want.addresses)), Entered: map[string]uint64{}, Refused: map[string]uint64{},
		Sent: c.sent.Load(), Received: c.received.Load(), Dropped: c.dropped.Load(), Announced: c.announcements.Load(), Answered: c.answers.Load(),
		Claimed: c.disputes.Load(), Errors: c.sendErrors.Load() + c.receiveErrors.Load() + c.holdErrors.Load(),
	}
	for _, address := range want.addresses {
		s.Addresses = append(s.Addresses, address.String())
	}
	for state := range c.transitions {
		s.Entered[vrrp.State(state).String()] = c.transitions[state].Load()
	}
	for i := range refusals {
		s.Refused[refusals[i].name] = c.refused[i].Load()
	}
	if now.peer.Address.IsValid() {
		s.Peer = &v1.VirtualRouterPeer{Address: now.peer.Address.String(), Priority: int(now.peer.Priority), Interval: now.peer.Interval.Seconds(), At: now.peer.At}
	}
	return s
}
