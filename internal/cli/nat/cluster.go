package nat

import (
	"errors"
	"fmt"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// checkCluster checks --cluster, which has the node ids of the destinations, and which of them drain, learned from the cluster.
func (f *natFlags) checkCluster(destinations []string) error {
	switch {
	case len(f.cluster) == 0:
		return nil
	case f.cidLength == 0:
		return errors.New("--cluster needs --cid-length")
	case len(f.nodes) > 0:
		return errors.New("--cluster and --node-ids exclude each other: the nodes report their ids")
	case len(f.cluster) != len(destinations):
		return fmt.Errorf("--cluster: %d admin addresses for %d destinations", len(f.cluster), len(destinations))
	}
	if _, err := cli.AdminToken(f.clusterToken); err != nil {
		return fmt.Errorf("--cluster-token-file: %w", err)
	}
	return nil
}

// follow adds the cluster to the service of the destinations, which are in the order of --cluster.
func (f *natFlags) follow(service *lb.ServiceSpec) {
	if len(f.cluster) == 0 {
		return
	}
	service.Cluster = &lb.ClusterSpec{TokenFile: f.clusterToken}
	for i := range service.Backends {
		service.Backends[i].Admin = f.cluster[i]
	}
}

// adminOf returns the admin address of a destination, which the console may remove and add again; empty: it has none.
func (f *natFlags) adminOf(destinations []string) func(name string) string {
	return func(name string) string {
		for i, admin := range f.cluster {
			if destinations[i] == name {
				return admin
			}
		}
		return ""
	}
}
