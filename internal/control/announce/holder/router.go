package holder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/control/announce/neighbour"
	"github.com/weir-lb/weir/internal/control/announce/vrrp"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// key identifies a router, with what cannot change while it runs.
type key struct {
	device string
	id     uint8
	is6    bool
	hold   lb.HoldBy
	owner  bool
}

// wanted is what a router shall do. It is not changed once it is given to one.
type wanted struct {
	settings  *lb.VRRP
	addresses []netip.Addr // of the family
	idle      string       // why the addresses cannot be served here; empty: they can
}

const (
	burst       = 5               // announcements at once
	secondBurst = 5 * time.Second // after the first
	repeatEvery = time.Minute
	repeatLimit = time.Second // between announcements that others cause
	retryEvery  = time.Second // of an interface that a router cannot run on
	queued      = 64          // packets that wait for the router
)

// router is one virtual router of one family. Its goroutine owns everything but what mu guards, and the counters.
type router struct {
	key      key
	log      *slog.Logger
	update   chan struct{} // capacity 1: next was replaced
	changed  chan struct{} // capacity 1: the interface may be another one
	relinked atomic.Bool   // changed, because of the link
	index    atomic.Int64  // of the interface; 0: none yet
	counters counters
	end      context.CancelFunc
	done     chan struct{}

	mu   sync.Mutex // guards what follows
	next *wanted
	now  condition

	// of the goroutine
	want    *wanted
	config  vrrp.Config
	machine *vrrp.Machine
	at      station
	conn    *conn
	frames  *frames
	held    []netip.Addr // on the interface, or answered for
	plan    plan
	fault   string // why there is no session; empty: there is one
	why     string // the session ends
	early   claim  // before a takeover, while no advertisement had come
	claim   claim  // last, of another machine
	logged  time.Time
	differs string // how the addresses of the other router differ
}

// newRouter starts a router.
func newRouter(k key, want *wanted, log *slog.Logger) *router {
	ctx, end := context.WithCancel(context.Background())
	r := &router{
		key: k, next: want, end: end, done: make(chan struct{}), update: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		log: log.With("interface", k.device, "vrid", k.id, "family", familyName(k.is6)),
	}
	r.now.since = time.Now()
	go r.run(ctx)
	return r
}

func familyName(is6 bool) string {
	if is6 {
		return "ipv6"
	}
	return "ipv4"
}

// set replaces what the router shall do.
func (r *router) set(want *wanted) {
	r.mu.Lock()
	r.next = want
	r.mu.Unlock()
	poke(r.update)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (r *router) run(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		err := r.session(ctx)
		if ctx.Err() != nil {
			return
		}
		r.fail(err)
		select {
		case <-ctx.Done():
		case <-r.changed:
		case <-r.update:
		case <-time.After(retryEvery):
		}
	}
}

// fail notes why the router does not run, and logs a new reason.
func (r *router) fail(err error) {
	if err == nil || errors.Is(err, errMoved) {
		return
	}
	if r.fault != err.Error() {
		r.fault = err.Error()
		r.log.Warn("vrrp: the virtual router does not run", "reason", r.fault)
	}
	r.publish()
}

// errMoved ends a session whose interface is another one: the next one begins at once.
var errMoved = errors.New("the interface has changed")

// session is the router's life on an interface that stays as it is.
func (r *router) session(ctx context.Context) (err error) {
	r.take()
	if err = r.open(); err != nil {
		return err
	}
	packets, seen := make(chan arrived, queued), make(chan neighbour.Frame, queued)
	var readers sync.WaitGroup
	readers.Go(func() { r.readPackets(r.conn, packets) })
	readers.Go(func() { r.readFrames(r.frames, seen) })
	defer func() {
		r.why = "the virtual router ends"
		if err != nil {
			r.why = err.Error()
		}
		r.act(r.machine.Stop(time.Now()))
		r.conn.Close()
		r.frames.close()
		readers.Wait()
		r.publish()
	}()
	r.fault = ""
	r.reconsider()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(r.due()))
		select {
		case <-ctx.Done():
			return nil
		case p := <-packets:
			r.early = claim{}
			r.act(r.machine.Receive(p.advertisement, p.from, time.Now()))
			r.compare(p)
		case f := <-seen:
			r.meet(f)
		case <-timer.C:
			r.tick(time.Now())
		case <-r.update:
			r.take()
			r.reconsider()
		case <-r.changed:
			if err := r.inspectAgain(); err != nil {
				return err
			}
		}
		r.publish()
	}
}

// take makes what was wanted last the goroutine's own.
func (r *router) take() {
	r.mu.Lock()
	r.want = r.next
	r.mu.Unlock()
}

// open opens the sockets on the interface as it is now, and removes the addresses that an earlier process left.
func (r *router) open() error {
	at, present, err := inspect(r.key.device, r.key.is6, r.virtual())
	r.index.Store(int64(at.index))
	if err != nil {
		return err
	}
	if err := r.clear(at, present); err != nil {
		return err
	}
	if r.conn, err = openVRRP(r.key.device, at); err != nil {
		return err
	}
	if r.frames, err = openFrames(r.key.device, at); err != nil {
		r.conn.Close()
		return err
	}
	r.at, r.held, r.plan = at, nil, plan{}
	r.relinked.Store(false)
	r.config = r.configuration()
	r.machine = vrrp.New(r.config)
	return nil
}

// virtual returns the addresses that are not this machine's own; an owner has them all the time.
func (r *router) virtual() []netip.Addr {
	if r.key.owner {
		return nil
	}
	return r.want.addresses
}

// clear removes own leftovers, and refuses addresses that somebody else has put on the interface: they would answer here at any time.
func (r *router) clear(at station, present []held) error {
	for _, h := range present {
		switch {
		case !slices.Contains(r.want.addresses, h.address):
		case h.own:
			if err := remove(at.index, h.address); err != nil {
				return fmt.Errorf("remove %s, which an earlier process left: %w", h.address, err)
			}
			r.log.Info("vrrp: address of an earlier process removed", "address", h.address.String())
		case !r.key.owner:
			return occupied(r.key.device, h.address)
		}
	}
	return nil
}

func (r *router) configuration() vrrp.Config {
	s := r.want.settings
	return vrrp.Config{Self: r.at.self, Priority: s.Priority, Interval: s.Interval, Preempt: s.Preempt, PreemptDelay: s.PreemptDelay}
}

// reconsider brings the machine in line with what is wanted.
func (r *router) reconsider() {
	now := time.Now()
	if config := r.configuration(); config != r.config {
		r.config = config
		r.act(r.machine.Configure(config, now))
	}
	switch {
	case r.want.idle != "":
		r.act(r.machine.Stop(now))
	case r.machine.State() == vrrp.Down:
		r.act(r.machine.Start(now))
		r.probe() // in time before a takeover
	}
	if r.machine.State() == vrrp.Active {
		r.hold()
	}
}

// inspectAgain ends the session if the interface, or the address that it sends from, is another one.
func (r *router) inspectAgain() error {
	at, _, err := inspect(r.key.device, r.key.is6, r.virtual())
	r.index.Store(int64(at.index))
	switch {
	case err != nil:
		return err
	case at != r.at:
		poke(r.changed)
		return errMoved
	}
	if r.relinked.Swap(false) && r.machine.State() == vrrp.Active {
		r.plan.hasten(time.Now()) // it may have been away for a moment, and switches forget then
	}
	return nil
}

// act does what the machine says.
func (r *router) act(a vrrp.Action) {
	state := r.machine.State()
	if a.Changed && state != vrrp.Active {
		r.release() // before the others are told
	}
	if a.Advertise {
		r.advertise(a.Priority)
	}
	if a.Changed {
		r.changeState(state)
	}
	if !a.Changed && a.Announce {
		r.plan.hasten(time.Now())
	}
}

func (r *router) changeState(state vrrp.State) {
	r.log.Info("virtual router changed state", "state", state.String(), "addresses", texts(r.want.addresses), "because", r.because(state))
	r.counters.transitions[state].Add(1)
	r.mu.Lock()
	r.now.since = time.Now()
	r.mu.Unlock()
	if state == vrrp.Active {
		r.judge()
		r.hold()
		r.probe() // the router before may have left its addresses behind
	}
}

// because says what led to a state.
func (r *router) because(state vrrp.State) string {
	peer := r.machine.Peer()
	switch {
	case state == vrrp.Down && r.want.idle != "":
		return r.want.idle
	case state == vrrp.Down:
		return r.why
	case state == vrrp.Backup && peer.Address.IsValid() && peer.Priority >= r.config.Priority:
		return fmt.Sprintf("%s advertises priority %d", peer.Address, peer.Priority)
	case state == vrrp.Backup:
		return "the router begins"
	case !peer.Address.IsValid():
		return "no other router advertises"
	case peer.Priority == 0:
		return fmt.Sprintf("%s gave the addresses up", peer.Address)
	}
	return fmt.Sprintf("the last advertisement of %s, with priority %d, is %s old", peer.Address, peer.Priority, time.Since(peer.At).Round(time.Millisecond))
}

func (r *router) advertise(priority uint8) {
	a := vrrp.Advertisement{ID: r.key.id, Priority: priority, Interval: r.config.Interval, Addresses: r.want.addresses}
	if err := r.conn.send(a.Append(nil, r.at.self)); err != nil {
		r.counters.sendErrors.Add(1)
		return
	}
	r.counters.sent.Add(1)
}
