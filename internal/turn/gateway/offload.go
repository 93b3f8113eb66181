package gateway

import (
	"sync"

	"github.com/weir-lb/weir/internal/turn/allocation"
)

// offloads is what the kernel relays of all workers' channels.
type offloads struct {
	driver Offload
	g      *Gateway

	mu   sync.Mutex
	byID map[uint32]*offloaded
}

// offloaded is one channel in the kernel, with what of it was counted already.
type offloaded struct {
	c        *client
	cluster  *counts
	up, down OffloadTraffic
}

func (o *offloads) init(g *Gateway) {
	o.g, o.driver, o.byID = g, g.options.Offload, map[uint32]*offloaded{}
}

// add hands a channel of a UDP client to the kernel. Without room there, user space goes on.
func (o *offloads) add(c *client, ch *allocation.Channel, p *peer) {
	if o.driver == nil || c.stream != nil || p.offload != 0 {
		return
	}
	id, err := o.driver.Add(OffloadChannel{
		Client: c.a.Path.Client, Server: c.a.Path.Server, Relay: p.relay.addr, Peer: ch.Peer, Number: ch.Number,
	})
	if err != nil {
		o.g.options.Log.Debug("a channel stays in user space", "client", c.a.Path.Client, "error", err)
		return
	}
	p.offload = id
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byID[id] = &offloaded{c: c, cluster: p.counts}
}

// remove takes a channel back, with its last counters.
func (o *offloads) remove(p *peer) {
	if p.offload == 0 {
		return
	}
	if err := o.driver.Remove(p.offload); err != nil {
		o.g.options.Log.Warn("a channel may still be relayed in the kernel", "error", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byID, p.offload)
	p.offload = 0
}

// count adds what went through the kernel since the last time to the counters of user space.
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
		o.g.options.Log.Warn("the kernel's counters cannot be read", "error", err)
	}
}

func (ch *offloaded) add(down bool, now OffloadTraffic, before *OffloadTraffic) {
	if now.Packets <= before.Packets {
		return
	}
	relayed(ch.c, ch.cluster, down, int(now.Packets-before.Packets), int(now.Bytes-before.Bytes), now.Last)
	*before = now
}

func (o *offloads) describe() string {
	if o.driver == nil {
		return ""
	}
	return o.driver.Describe()
}
