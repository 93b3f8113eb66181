package bench

import (
	"context"
	"net/netip"
	"os"
	"time"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// TurnCluster is a gateway in Kubernetes, with an iperf server behind it.
type TurnCluster struct {
	Gateway string         // k8s://NAMESPACE/GATEWAY:LISTENER
	Lookup  []string       // options of weir turn cat, by which it finds the gateway
	Peer    netip.AddrPort // the iperf server, as the gateway reaches it
}

// openCluster starts a turncat for each client in front of the gateway.
func (s *turnStage) openCluster(ctx context.Context) error {
	c := s.config.Cluster
	s.network, s.offload = "gateway and iperf server in Kubernetes, clients and turncats here", "as its Dataplane says"
	s.iperf = &turnIperf{at: c.Peer, output: &programs.LastLines{}, sources: map[string][]netip.AddrPort{}}
	path := &turnPath{name: pathTurnCluster + pathTurnCat, sink: c.Peer}
	if err := s.addCats(ctx, path, pathTurnCluster, c.Gateway, c.Lookup); err != nil {
		return err
	}
	s.paths = append(s.paths, path)
	return nil
}

// releaseAll ends the turncats so that they give their allocations back, which would stay at a gateway that goes on for ten minutes.
func (s *turnStage) releaseAll() {
	const longest = 5 * time.Second
	for _, cat := range s.cats {
		_ = cat.Process.Signal(os.Interrupt) // it may have ended
	}
	for _, cat := range s.cats {
		kill := time.AfterFunc(longest, func() { _ = cat.Process.Kill() })
		_ = cat.Wait() // interrupted
		kill.Stop()
		s.Running.Forget(cat)
	}
}
