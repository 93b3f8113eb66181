package gateway

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// offloads is what the kernel relays for the channels of all workers.
type offloads struct {
	driver Offload
	log    *slog.Logger
	g      *Gateway

	quotas atomic.Pointer[QuotaConfig]

	mu   sync.Mutex
	byID map[uint32]*offloaded
}

// boundChannel is a channel that is offloaded after the answer to its ChannelBind was sent.
type boundChannel struct {
	c    *client
	ch   *allocation.Channel
	peer *peer
}

// offloaded is one channel in the kernel, with the traffic that was already counted.
type offloaded struct {
	c        *client
	cluster  *counts
	up, down OffloadTraffic
}

func (o *offloads) init(g *Gateway) {
	o.g, o.driver, o.byID = g, g.options.Offload, map[uint32]*offloaded{}
	o.log = g.options.Log.With("scope", "offload")
}

// bound schedules a channel of a UDP client for the offload at the end of the poll. By then its client has the
// answer.
func (w *worker) bound(c *client, ch *allocation.Channel, p *peer) {
	if w.gateway.offload.driver == nil || c.stream != nil || p.offload != 0 || p.bound {
		return
	}
	p.bound = true
	w.boundChannels = append(w.boundChannels, boundChannel{c, ch, p})
}

// unbound removes a channel from the kernel and adds its last counters.
func (w *worker) unbound(p *peer) {
	p.bound = false
	w.gateway.offload.remove(p)
}

// offloadBound adds the channels that were scheduled in this poll to the kernel.
func (w *worker) offloadBound() {
	for i, b := range w.boundChannels {
		w.boundChannels[i] = boundChannel{}
		if b.peer.bound && !b.c.gone {
			w.gateway.offload.add(b.c, b.ch, b.peer)
		}
		b.peer.bound = false
	}
	w.boundChannels = w.boundChannels[:0]
}

// limit sets the quotas of channels from now on. It returns whether they differ from the previous ones.
func (o *offloads) limit(q QuotaConfig) bool {
	before := o.quotas.Swap(&q)
	return before != nil && (before.Bandwidth != q.Bandwidth || before.Burst != q.Burst)
}

// offloadAgain adds the worker's channels to the kernel again, under new quotas.
func (w *worker) offloadAgain() {
	for a := range w.table.All {
		c, _ := a.Data.(*client)
		for ch := range a.Channels {
			if p, _ := ch.Data.(*peer); c != nil && p != nil && p.offload != 0 {
				w.unbound(p)
				w.bound(c, ch, p)
			}
		}
	}
	w.offloadBound()
}

// add adds a channel to the kernel. If the kernel has no space for it, user space continues to relay it.
func (o *offloads) add(c *client, ch *allocation.Channel, p *peer) {
	request := OffloadChannel{
		Client: c.a.Path.Client, Server: c.a.Path.Server, Relay: p.relay.addr, Peer: ch.Peer, Number: ch.Number, Allocation: c.a.ID,
	}
	if q := o.quotas.Load(); q != nil {
		request.BytesPerSecond, request.Burst = uint64(q.Bandwidth), uint64(q.Burst)
	}
	id, err := o.driver.Add(request)
	if err != nil {
		o.log.Debug("a channel stays in user space", "client", c.a.Path.Client, "error", err)
		return
	}
	p.offload = id
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byID[id] = &offloaded{c: c, cluster: p.counts}
}

// remove removes a channel from the kernel and adds its last counters.
func (o *offloads) remove(p *peer) {
	if p.offload == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	up, down, err := o.driver.Remove(p.offload)
	if err != nil {
		o.log.Warn("a channel may still be relayed in the kernel", "error", err)
	} else if ch := o.byID[p.offload]; ch != nil {
		ch.add(false, up, &ch.up)
		ch.add(true, down, &ch.down)
	}
	delete(o.byID, p.offload)
	p.offload = 0
}

// count adds what the kernel relayed since the last call to the counters of user space.
func (o *offloads) count() {
	if o.driver == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.driver.Counters(func(id uint32, up, down OffloadTraffic) {
		ch := o.byID[id]
		if ch == nil {
			return
		}
		ch.add(false, up, &ch.up)
		ch.add(true, down, &ch.down)
	})
	if err != nil {
		o.log.Warn("the kernel's counters cannot be read", "error", err)
	}
}

func (ch *offloaded) add(down bool, now OffloadTraffic, before *OffloadTraffic) {
	if now.Packets <= before.Packets {
		return
	}
	ch.c.kernel.Add(int64(now.Bytes - before.Bytes))
	relayed(ch.c, ch.cluster, down, int(now.Packets-before.Packets), int(now.Bytes-before.Bytes), now.Last)
	*before = now
}

func (o *offloads) describe() string {
	if o.driver == nil {
		return ""
	}
	return o.driver.Describe()
}
