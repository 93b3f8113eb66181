package owners

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-lb/weir/api/v1"
)

// Status is the view of each service that follows a cluster, by name.
func (f *Follower) Status() map[string]*v1.ClusterStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]*v1.ClusterStatus, len(f.services))
	for name, s := range f.services {
		age := time.Since(s.answered)
		status := &v1.ClusterStatus{Age: age.Seconds(), Old: age >= s.cluster.OldAfter, Conflict: s.conflict}
		for _, backend := range slices.Sorted(maps.Keys(s.nodes)) {
			n, c := s.nodes[backend], s.counts[backend]
			status.Nodes = append(status.Nodes, v1.ClusterNodeStatus{
				Backend: backend, Admin: s.admins[backend], IDs: n.ids, Answers: n.answers, Draining: n.draining, Error: c.err,
				Queries: v1.ClusterQueries{Passed: c.passed, Failed: c.failed},
			})
		}
		all[name] = status
	}
	return all
}
