package nfqueue

import (
	"net/netip"
	"time"
)

// Flow is one entry of a worker's flow table.
type Flow struct {
	Protocol         uint8
	Client, VIP      netip.AddrPort
	Service, Backend string
	State            string        // opening, established or closing for TCP, else empty
	Left             time.Duration // until it expires if nothing comes
}

// Flows returns up to limit live flows, in no order. Workers stop for the time it takes to copy them.
func (d *Datapath) Flows(limit int) []Flow {
	d.mu.Lock()
	defer d.mu.Unlock()
	var flows []Flow
	d.crew.Do(func(w *worker) {
		if len(flows) >= limit {
			return
		}
		for f := range w.engine.Flows(w.now()) {
			flows = append(flows, Flow{
				Protocol: f.Key.Proto, Client: f.Key.Source(), VIP: f.Key.Destination(),
				Service: f.Backend.Service.Name, Backend: f.Backend.Name, State: f.State, Left: f.Left,
			})
			if len(flows) >= limit {
				return
			}
		}
	})
	return flows
}
