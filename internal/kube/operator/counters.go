package operator

import (
	"sync"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
)

// Counters are what the operator has done since it started.
type Counters struct {
	Leader         bool              `metric:"weir_operator_leader" help:"1 while this process is the leader, which writes."`
	Renders        uint64            `metric:"weir_operator_renders_total" help:"Times that the whole state of the world was rendered."`
	Failures       uint64            `metric:"weir_operator_render_failures_total" help:"Renders of which something could not be read or written; they are tried again."`
	Objects        int               `metric:"weir_operator_objects" help:"Objects of the last render."`
	TranslateTime  metrics.Histogram `metric:"weir_operator_translate_duration_seconds" buckets:"1ms..10s" help:"Time to list and translate."`
	WriteTime      metrics.Histogram `metric:"weir_operator_write_duration_seconds" buckets:"1ms..10s" help:"Time to write objects and statuses."`
	StatusWrites   uint64            `metric:"weir_operator_status_writes_total" help:"Statuses written."`
	Conflicts      uint64            `metric:"weir_operator_status_conflicts_total" help:"Statuses not written because the object had changed or was gone."`
	ObjectsApplied uint64            `metric:"weir_operator_objects_applied_total" help:"Objects applied."`
	ObjectsDeleted uint64            `metric:"weir_operator_objects_deleted_total" help:"Objects deleted."`
	Events         uint64            `metric:"weir_operator_events_total" help:"Events written."`
}

// counters guards them: the loop writes, requests read.
type counters struct {
	mu     sync.Mutex
	c      Counters
	error  string               // of the last render
	planes [][]v1.OperatorPlane // of each controller
}

func (c *counters) change(change func(*Counters)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.c)
}

func (c *counters) read() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.c
}

func (c *counters) rendered(objects int, translate, write time.Duration) {
	c.change(func(c *Counters) {
		c.Objects = objects
		c.TranslateTime.Observe(translate)
		c.WriteTime.Observe(write)
	})
}

// ended counts a render.
func (c *counters) ended(leads bool, planes [][]v1.OperatorPlane, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.c.Leader = leads
	c.c.Renders++
	c.planes, c.error = planes, ""
	if err != nil {
		c.c.Failures++
		c.error = err.Error()
	}
}

func (c *counters) wroteStatus() { c.change(func(c *Counters) { c.StatusWrites++ }) }
func (c *counters) conflicted()  { c.change(func(c *Counters) { c.Conflicts++ }) }
func (c *counters) applied()     { c.change(func(c *Counters) { c.ObjectsApplied++ }) }
func (c *counters) deleted()     { c.change(func(c *Counters) { c.ObjectsDeleted++ }) }
func (c *counters) wroteEvent()  { c.change(func(c *Counters) { c.Events++ }) }
