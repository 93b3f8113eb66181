package turn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/iperf"
	"github.com/weir-lb/weir/internal/turn/turncat"
)

// iperfTimeout is how long the image of the iperf server may take to be there, and the gateway to be configured.
const iperfTimeout = 3 * time.Minute

// benchCluster is the gateway in Kubernetes that is measured.
type benchCluster struct {
	clusterFlags
	gateway, image, peer string
	of                   turncat.Gateway
}

func (f *benchCluster) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.gateway, "gateway", "stunner/udp-gateway:udp-listener", "of --platform k8s: NAMESPACE/GATEWAY:LISTENER")
	flags.StringVar(&f.image, "iperf-image", "l7mp/net-debug:latest", "of --platform k8s: image with iperf (version 2) in its PATH")
	flags.StringVar(&f.peer, "peer", "service", "of --platform k8s: the iperf server's address, service (the cluster IP) or pod")
	f.add(flags, "--platform k8s")
}

// parse checks the flags, which need platform k8s.
func (f *benchCluster) parse(cmd *cobra.Command, platform string) (err error) {
	if platform != bench.PlatformKubernetes {
		for _, name := range []string{"gateway", "iperf-image", "peer", "discovery", "kubeconfig", "context"} {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--%s is about --platform k8s; write that too", name)
			}
		}
		return nil
	}
	if f.of, err = turncat.ParseGateway("k8s://" + f.gateway); err != nil || !strings.Contains(f.gateway, "/") {
		return fmt.Errorf("--gateway %q: write NAMESPACE/GATEWAY:LISTENER", f.gateway)
	}
	if f.peer != "service" && f.peer != "pod" {
		return fmt.Errorf("--peer %q: write service or pod", f.peer)
	}
	return nil
}

// run starts an iperf server behind the gateway, measures, and removes it.
func (f *benchCluster) run(ctx context.Context, config bench.TurnConfig) (runs []*bench.TurnRun, err error) {
	where := f.lookup()
	client, err := where.Client()
	if err != nil {
		return nil, err
	}
	id := discovery.ID{Namespace: f.of.Namespace, Name: f.of.Name}
	read, err := f.reader(id)
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeoutCause(ctx, iperfTimeout, fmt.Errorf("not within %v", iperfTimeout))
	defer cancel()
	server, err := iperf.Start(starting, iperf.Config{Client: client, Gateway: id, Image: f.image, Pod: f.peer == "pod", Read: read})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	config.Cluster = &bench.TurnCluster{Gateway: "k8s://" + f.gateway, Peer: server.Peer(), Lookup: f.options()}
	return bench.Turn(ctx, config)
}

// options are those by which weir turn cat finds the gateway as this command does.
func (f *benchCluster) options() (all []string) {
	if f.discovery != "" {
		return []string{"--discovery", f.discovery}
	}
	if f.kubeconfig != "" {
		all = append(all, "--kubeconfig", f.kubeconfig)
	}
	if f.context != "" {
		all = append(all, "--context", f.context)
	}
	return all
}
