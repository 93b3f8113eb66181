package engine

import "testing"

// Sessions that made room count in the sum of the workers, too: once the sum left them out.
func TestStatsAddUpTheWorkers(t *testing.T) {
	e := &Engine{workers: []*Worker{{}, {}}}
	for i, w := range e.workers {
		w.published.stats = Stats{Sessions: 1, Evicted: uint64(i + 2), KernelDrops: 4}
		w.published.stats.RequestTime.Observe(0)
	}
	sum := e.Stats()
	if sum.Sessions != 2 || sum.Evicted != 5 || sum.KernelDrops != 8 || sum.RequestTime.Count() != 2 {
		t.Errorf("%+v", sum)
	}
}
