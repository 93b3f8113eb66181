package kubedemo

import (
	"fmt"
	"time"

	"github.com/weir-lb/weir/internal/testbed/plot"
)

// page is the report of the run.
func (r *Result) page(when time.Time, method string) plot.Report {
	rows := r.rows()
	p := plot.Report{
		Title: "Weir in Kubernetes: sessions outlive their Pods", When: when, OK: r.OK, Verdict: r.Verdict, Method: method,
		Lead: fmt.Sprintf("%d DTLS clients send requests to CoAP servers through a Gateway for UDP and change their ports every %.0f s, so that the load balancer finds their Pods by connection id; %d TURN allocations carry datagrams both ways through a TURN Gateway, "+
			"which is behind the same load balancer. Meanwhile every Pod is replaced or killed.", r.Clients, rebindEvery.Seconds(), r.Clients),
		Picture: plot.Topology{
			Title:   "Clients, load balancer and Pods",
			Clients: []plot.Box{{Name: fmt.Sprintf("%d DTLS clients", r.Clients), Detail: "to " + r.L4.String()}, {Name: fmt.Sprintf("%d TURN clients", r.Clients), Detail: "to " + r.TURN.String()}},
			Via:     plot.Box{Name: "weir lb run", Detail: "DaemonSet, in the kernel"},
			Nodes:   []plot.Box{{Name: "coap-0, 1, 2", Detail: "StatefulSet"}, {Name: "calls", Detail: "TURN gateway"}},
		},
		Facts: []plot.Fact{
			{Name: "DTLS sessions lost", Value: fmt.Sprintf("%d of %d", r.Sessions.LostSessions, r.Clients)},
			{Name: "TURN allocations lost", Value: fmt.Sprintf("%d of %d", r.Clients-r.Calls.Alive, r.Clients)},
			{Name: "requests answered", Value: plot.Whole(uint64(r.Sessions.Requests))},
			{Name: "datagrams relayed", Value: plot.Whole(uint64(r.Calls.Up + r.Calls.Down))},
			{Name: "packets steered by connection id", Value: plot.Whole(uint64(r.Steered))},
			{Name: "new handshakes", Value: fmt.Sprint(r.Sessions.Rehandshakes)},
		},
		Figures: r.figures(),
		Tables:  []plot.Table{{Title: "What was lost", Header: rows[0], Rows: rows[1:]}},
	}
	for _, e := range r.Events {
		p.Events = append(p.Events, plot.Event{X: e.At, Label: fmt.Sprintf("%s; done after %.1f s", e.Label, e.Took)})
	}
	return p
}

func (r *Result) figures() []plot.Figure {
	var x, requests, datagrams, sessions, packets, p50, p99 []float64
	for i, t := range r.ticks {
		if i == 0 { // it has no rates
			continue
		}
		x, requests, datagrams = append(x, t.at), append(requests, t.requests), append(datagrams, t.datagrams)
		sessions, packets = append(sessions, float64(t.lostSessions)), append(packets, float64(t.lostPackets))
		p50, p99 = append(p50, t.p50), append(p99, t.p99)
	}
	events := make([]plot.Event, len(r.Events))
	for i, e := range r.Events {
		events[i] = plot.Event{X: e.At, Label: e.Label, Short: e.Short}
	}
	return []plot.Figure{
		plot.Chart{
			Title: "Lost", YLabel: "since the start", Events: events,
			Series: []plot.Series{{Name: "DTLS sessions", X: x, Y: sessions}, {Name: "TURN datagrams", X: x, Y: packets}},
		},
		plot.Chart{
			Title: "Traffic", YLabel: "per second", Events: events,
			Series: []plot.Series{{Name: "requests answered", X: x, Y: requests, Steps: true}, {Name: "datagrams relayed", X: x, Y: datagrams, Steps: true}},
			Note:   "A client sends its next request when it has the answer, and repeats one that had none after 2 to 3 s (RFC 7252). The datagrams of calls are counted when a round of them has ended.",
		},
		plot.Chart{
			Title: "Round-trip time of requests", YLabel: "ms, logarithmic", Events: events, Log: true,
			Series: []plot.Series{{Name: "p50", X: x, Y: p50, Steps: true}, {Name: "p99", X: x, Y: p99, Steps: true}},
		},
	}
}
