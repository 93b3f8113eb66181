package nfqueue

import (
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/steer"
)

// Flow is one entry of a worker's flow table.
type Flow struct {
	Protocol         uint8
	Client, VIP      netip.AddrPort
	Service, Backend string
	State            string        // opening, established or closing for TCP, else empty
	Left             time.Duration // time until it expires if no packet arrives
}

// flowsPerStep is how many slots of the flow table a worker visits between two batches for Flows; this takes about 0.1 ms.
const flowsPerStep = 1024

// Flows calls yield for each live flow, in no order, until yield returns false. Workers visit flowsPerStep slots of their
// tables at a time and serve their queues in between. A flow that lives during the whole call is yielded once, any other
// flow at most once.
func (d *Datapath) Flows(yield func(Flow) bool) {
	buffer := make([]steer.Flow, 0, flowsPerStep) // a worker must not wait for yield or for memory
	going := true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.group.Steps(func(w *worker, from int) int {
		if !going {
			return 0
		}
		started := w.now()
		defer func() { d.pause.Observe(w.now() - started) }()
		return w.engine.ScanFlows(from, flowsPerStep, started, func(f steer.Flow) bool {
			buffer = append(buffer, f)
			return true
		})
	}, func() {
		d.mu.Unlock() // so that Apply need not wait for the last step
		defer d.mu.Lock()
		for i := range buffer {
			going = going && yield(flowOf(&buffer[i]))
		}
		buffer = buffer[:0]
	})
}

func flowOf(f *steer.Flow) Flow {
	return Flow{
		Protocol: f.Key.Proto, Client: f.Key.Source(), VIP: f.Key.Destination(),
		Service: f.Backend.Service.Name, Backend: f.Backend.Name, State: f.State, Left: f.Left,
	}
}
