package holder

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/control/announce/neighbour"
	"github.com/weir-lb/weir/internal/control/announce/vrrp"
)

// arrived is an advertisement of another router for this virtual one.
type arrived struct {
	advertisement vrrp.Advertisement
	from          netip.Addr
}

func (r *router) readPackets(c *conn, to chan<- arrived) {
	b := make([]byte, 8+vrrp.MaxAddresses*16+1)
	for {
		a, err := c.receive(b)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			r.counters.receiveErrors.Add(1)
			time.Sleep(time.Millisecond) // such as a link that goes down: the error is cleared by reading it
			continue
		}
		if len(a.bytes) > 1 && a.bytes[1] != r.key.id || a.source == (netip.Addr{}) {
			continue // of another virtual router
		}
		packet, err := vrrp.Parse(a.bytes, a.source, a.destination)
		if err == nil && a.hopLimit != vrrp.HopLimit {
			err = errHopLimit
		}
		if err != nil {
			r.counters.refuse(err)
			continue
		}
		r.counters.received.Add(1)
		select {
		case to <- arrived{packet, a.source}:
		default:
			r.counters.dropped.Add(1)
		}
	}
}

var errHopLimit = errors.New("it has passed a router: TTL or hop limit is not 255")

func (r *router) readFrames(f *frames, to chan<- neighbour.Frame) {
	b := make([]byte, maxFrame)
	for {
		n, err := f.receive(b)
		switch {
		case f.closed.Load():
			return
		case err != nil:
			r.counters.receiveErrors.Add(1)
			time.Sleep(time.Millisecond)
			continue
		}
		frame, ok := neighbour.Parse(b[:n])
		if !ok || !r.concerns(frame) {
			continue
		}
		select {
		case to <- frame:
		default:
			r.counters.dropped.Add(1)
		}
	}
}

// concerns reports whether a frame is about an address of the router.
func (r *router) concerns(f neighbour.Frame) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.next.addresses, f.Claimed) || slices.Contains(r.next.addresses, f.Address)
}
