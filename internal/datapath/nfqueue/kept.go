package nfqueue

import (
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/datapath/nfqueue/flowfile"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/steer"
)

// Kept is what outlives the process, and what an earlier one has left.
type Kept struct {
	File     string                 // where flows are kept; "": nowhere
	Why      string                 // why they are not, or why those of an earlier process were not taken; "": they are
	Unkept   uint64                 `metric:"weir_queue_flows_unkept_total" help:"Changes of flows that were not written to the file for the next process, because there was no memory."`
	TookOver int                    `metric:"weir_queue_flows_taken_over" help:"Flows of the last process that this one has taken over at its start."`
	Flows    [steer.NumRestored]int // of the last process, by what became of them
	Damaged  int                    // records
	Took     time.Duration
}

// kept is the file of a Datapath.
type kept struct {
	Kept
	file *flowfile.File // nil: there is none
}

// openFlowFile opens the file of the configuration for the limits of a first snapshot. Without it the data path works as well.
func (d *Datapath) openFlowFile(s *lb.Snapshot) {
	c := &d.config
	if c.FlowFile == "" {
		return
	}
	file, why, err := flowfile.Open(c.FlowFile, c.Count, maxFlows(c, s), c.Now())
	if err != nil {
		d.kept.Why = err.Error()
		c.Log.Warn("flows are not kept for the next process: its file cannot be used", "file", c.FlowFile, "error", err)
		return
	}
	d.kept.file, d.kept.File, d.kept.Why = file, c.FlowFile, why
	if why != "" {
		c.Log.Warn("the flows of the last process cannot be taken over: they start again", "file", c.FlowFile, "why", why)
	}
}

// journal is where worker i keeps its flows; nil: nowhere.
func (k *kept) journal(i int) steer.Journal {
	if k.file == nil {
		return nil
	}
	return k.file.Worker(i)
}

// restoreFlows enters what an earlier process has left. Workers do not run yet; meanwhile packets wait in their queues.
func (d *Datapath) restoreFlows() {
	k := &d.kept
	if k.file == nil {
		return
	}
	began := d.config.Now()
	var group sync.WaitGroup
	var mu sync.Mutex
	for i, w := range d.workers {
		group.Go(func() {
			var became [steer.NumRestored]int
			damaged := k.file.Read(i, func(f steer.KeptFlow) { became[w.engine.Restore(&f, began)]++ })
			mu.Lock()
			defer mu.Unlock()
			k.Damaged += damaged
			for i, n := range became {
				k.Flows[i] += n
			}
		})
	}
	group.Wait()
	if err := k.file.Commit(); err != nil {
		k.Why = err.Error()
		d.config.Log.Warn("flows are not kept for the next process: its file cannot be used", "file", k.File, "error", err)
	}
	k.Took = d.config.Now() - began
	if k.Flows != [steer.NumRestored]int{} || k.Damaged > 0 {
		d.config.Log.Info("took over the flows of the last process", "file", k.File, "flows", k.Flows[steer.RestoredFlow],
			"expired", k.Flows[steer.RestoreExpired], "not_configured", k.Flows[steer.RestoreGone], "no_room", k.Flows[steer.RestoreNoRoom],
			"damaged", k.Damaged+k.Flows[steer.RestoreBad], "took", k.Took)
	}
}

func (k *kept) close(remove bool) error {
	if k.file == nil {
		return nil
	}
	file := k.file
	k.Unkept, k.file = file.Unkept(), nil
	return file.Close(remove)
}

// keptLocked returns what outlives the process.
func (d *Datapath) keptLocked() Kept {
	k := d.kept.Kept
	if d.kept.file != nil {
		k.Unkept = d.kept.file.Unkept()
	}
	k.TookOver = k.Flows[steer.RestoredFlow]
	return k
}
