package steer

import (
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// outbound steers a packet that no client has requested. The first UDP packet from a backend's endpoint to a client outside
// opens the client's flow to that backend, and leaves with the VIP as its source. What the client then answers or begins
// comes back to that backend. Any other packet is not ours.
func (e *Engine) outbound(k flow.Key, now time.Duration) (Decision, flow.Key) {
	notOurs := verdict(lb.ReasonNotService, nil, nil)
	if k.Proto != flow.ProtoUDP {
		return notOurs, k
	}
	from := e.snapshot.Outbound(k.Src, k.SrcPort)
	b := from.Backend
	if b == nil || b.State == lb.Down || b.Service.Down || e.snapshot.HasAddress(k.Dst) {
		return notOurs, k
	}
	if _, isBackend := e.natBackends[k.Dst]; isBackend {
		return notOurs, k
	}
	client := flow.NewKey(k.Destination(), from.VIP, k.Proto)
	if en, _ := e.find(client, b.Service, now); en != nil {
		return notOurs, k // the client is with another backend, or reached this one at another endpoint
	}
	if !e.services[b.Service.Index].rate.take(now) {
		return verdict(lb.ReasonNewFlowRate, b.Service, nil), k
	}
	if problem := e.openOutbound(client, k, b, now); problem != lb.ReasonNone {
		return verdict(problem, b.Service, nil), k
	}
	d := verdict(lb.ReasonOutbound, b.Service, b)
	d.New = true
	d.Source = from.VIP
	return d, client
}

// openOutbound makes the entry of a client's flow whose backend sees the client's own address, even if the service has SNAT.
func (e *Engine) openOutbound(client, reply flow.Key, b *lb.Backend, now time.Duration) lb.Reason {
	e.Forget(client)
	ttl := notTCP.timeout(b.Service, client.Proto)
	if !e.flows.Put(client, entry{record: e.placeOf(b)}, now, ttl) {
		return lb.ReasonFlowTableFull
	}
	if !e.reserveReply(e.flows.Get(client, now), reply, client, now, ttl) {
		e.flows.Delete(client)
		return lb.ReasonFlowTableFull
	}
	return lb.ReasonNone
}
