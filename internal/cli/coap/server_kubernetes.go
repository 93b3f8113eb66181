package coap

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/cluster"
	"github.com/weir-lb/weir/internal/coap/cluster/store"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/kube/leases"
	"github.com/weir-lb/weir/internal/kube/pods"
)

// podCluster is a cluster whose nodes are Pods of Kubernetes.
type podCluster struct {
	own    cluster.Node
	port   uint16 // management port of the others
	source pods.Config

	progress pods.Progress
}

// newPodCluster reads DTLS;MANAGEMENT;PORT, as Californium's --k8s-dtls-cluster, and the environment.
func newPodCluster(text string) (*podCluster, error) {
	fields := strings.Split(text, ";")
	if len(fields) != 3 {
		return nil, fmt.Errorf("%q: want DTLS-ADDRESS;MANAGEMENT-ADDRESS;PORT, where PORT is the other Pods' management port, for example :5784;:5884;5884", text)
	}
	port, err := strconv.ParseUint(fields[2], 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("%q is no port of 1 to 65535", fields[2])
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	p := &podCluster{own: cluster.Node{DTLS: fields[0], Management: fields[1]}, port: uint16(port)}
	if p.own.ID, err = pods.NodeID(hostname, os.Getenv); err != nil {
		return nil, err
	}
	if p.source, err = pods.FromEnvironment(hostname, os.Getenv); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *podCluster) config() *cluster.Config {
	return &cluster.Config{Nodes: []cluster.Node{p.own}, Discovered: true}
}

// leases are those in which the nodes of a cluster agree; without a name it is that of the StatefulSet.
func (p *podCluster) leases(name string) (*store.Leases, error) {
	if name == "" {
		var ok bool
		if name, ok = pods.StatefulSet(p.source.Self); !ok {
			return nil, fmt.Errorf("kubernetes: the host name %q is not that of a Pod of a StatefulSet, such as coap-0; write kubernetes:CLUSTER, the same on all nodes", p.source.Self)
		}
	}
	all, err := leases.Open(&p.source, name)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	return store.OpenLeases(all), nil
}

// follow has the server search for other nodes at the addresses of the Pods, as these come and go.
func (p *podCluster) follow(server *node.Node, log *slog.Logger) cli.Loop {
	source := p.source
	source.Log, source.Progress = log, &p.progress
	return func(ctx context.Context) error {
		return pods.Follow(ctx, source, func(others []pods.Pod) { server.SetClusterGroup(p.addresses(others)) })
	}
}

// addresses are where the management ports of Pods are: at the address of the family that the own one has.
func (p *podCluster) addresses(others []pods.Pod) (all []netip.AddrPort) {
	own, _ := netip.ParseAddrPort(p.own.Management)
	for i := range others {
		address := others[i].Addresses[0]
		for _, a := range others[i].Addresses {
			if own.IsValid() && a.Is4() == own.Addr().Unmap().Is4() {
				address = a
				break
			}
		}
		all = append(all, netip.AddrPortFrom(address, p.port))
	}
	return all
}
