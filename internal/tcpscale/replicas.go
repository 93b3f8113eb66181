package tcpscale

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// MaxReplicas bounds the clients of one run.
const MaxReplicas = 1000

// ReplicaWorkers are the workers of so many clients, one client's after another's. Each client is what base says: it has all of its
// connections, its rate and churn, so many workers, an ID (base's, a hyphen and its number from 0) and a Run of its own. Sources
// are dealt out in turn, to workers if there are enough, else to clients; fewer than clients are shared by all. As
// in [ClientWorkers] six workers ramp at once, so that clients fill up one after another.
func ReplicaWorkers(base ClientConfig, replicas, workers, ports int) ([]WorkerConfig, error) {
	if replicas < 1 || replicas > MaxReplicas {
		return nil, fmt.Errorf("%d replicas: 1 to %d", replicas, MaxReplicas)
	}
	all := base
	all.Connections *= replicas
	all.Churn *= float64(replicas)
	configs, err := ClientWorkers(all, replicas*workers, ports)
	if err != nil {
		return nil, err
	}
	if workers > base.Connections {
		return nil, fmt.Errorf("%d workers for %d connections", workers, base.Connections)
	}
	for i := range configs {
		c, replica := configs[i].Client, i/workers
		c.Client = uint32(i % workers)
		c.Rate = base.Rate / float64(min(workers, RampingWorkers))
		if replicas == 1 {
			continue
		}
		c.ID = fmt.Sprintf("%s-%d", base.ID, replica)
		if c.Run = rand.Uint64(); i%workers > 0 {
			c.Run = configs[i-1].Client.Run
		}
		if len(base.Sources) >= replicas && len(base.Sources) < replicas*workers {
			c.Sources = everyNth(base.Sources, replica, replicas)
		}
	}
	return configs, nil
}

func everyNth(sources []netip.Addr, first, n int) (some []netip.Addr) {
	for i := first; i < len(sources); i += n {
		some = append(some, sources[i])
	}
	return some
}

// replicas adds what concerns several clients to the sum of their reports, and returns theirs.
func (c *ClientRun) replicas(group *Group, workers int, sum *Report) []Report {
	each := group.Reports(workers)
	sum.ID = c.Config.ID
	sum.Replicas = &Replicas{Replicas: c.Replicas, Connections: c.Config.Connections}
	for i := range each {
		r := &each[i]
		r.Final = sum.Final
		if r.Workers == workers && r.Connections.Established >= c.Config.Connections {
			sum.Replicas.Whole++
			sum.Replicas.Held += r.Connections.Established
		} else if sum.Plateau != nil {
			p := *sum.Plateau
			p.Connections = r.Connections.Established
			p.Text = sentence(&p)
			r.Plateau = &p
		}
	}
	return each
}
