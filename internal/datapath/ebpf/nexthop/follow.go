package nexthop

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

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
	t.following.Store(true)
	defer t.following.Store(false)
	t.refresh(allRoutes, true) // what changed before the subscriptions
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
			t.refresh(t.someRoutes(), false)
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
		if !paths {
			t.refresh(noRoutes, true)
			continue
		}
		t.refresh(allRoutes, true)
		t.pathsChanged()
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
