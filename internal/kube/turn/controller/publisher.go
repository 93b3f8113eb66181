package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// publisher brings configurations to data planes by the discovery service.
type publisher struct {
	listen string
	log    *slog.Logger
	server *discovery.Server
	once   sync.Once
	first  chan struct{} // closed when there are configurations

	mu    sync.Mutex
	nodes map[string]string // external addresses
}

func newPublisher(listen string, log *slog.Logger) *publisher {
	p := &publisher{listen: listen, log: cmp.Or(log, slog.New(slog.DiscardHandler)), first: make(chan struct{}), nodes: map[string]string{}}
	p.server = discovery.NewServer(discovery.ServerOptions{
		Patch:   func(config []byte, node string) []byte { return stunnerd.PatchNode(config, p.address(node)) },
		Deleted: func(id discovery.ID) []byte { return stunnerd.Deleted(id.String()) },
		Log:     p.log,
	})
	return p
}

func (p *publisher) address(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes[node]
}

// follow takes the external addresses of nodes over. Data planes at a node whose address has changed get their configuration again.
func (p *publisher) follow(nodes []*corev1.Node) {
	now := map[string]string{}
	for _, node := range nodes {
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeExternalIP && now[node.Name] == "" {
				now[node.Name] = a.Address
			}
		}
	}
	p.mu.Lock()
	before := p.nodes
	p.nodes = now
	p.mu.Unlock()
	for name, address := range now {
		if before[name] != address {
			p.server.Push(name)
		}
	}
	for name := range before {
		if _, stays := now[name]; !stays {
			p.server.Push(name)
		}
	}
}

// Publish replaces all configurations.
func (p *publisher) Publish(configs []operator.Config) error {
	all := make(map[discovery.ID][]byte, len(configs))
	for i := range configs {
		namespace, name, _ := strings.Cut(configs[i].Plane, "/")
		all[discovery.ID{Namespace: namespace, Name: name}] = configs[i].Text
	}
	err := p.server.Replace(all)
	p.once.Do(func() { close(p.first) })
	return err
}

// Applied is empty: the protocol does not say what a data plane runs. The readiness of its Pods does.
func (p *publisher) Applied() map[string]string { return nil }

// Run serves the configurations as soon as there are some.
func (p *publisher) Run(ctx context.Context, _ func()) error {
	select {
	case <-p.first:
	case <-ctx.Done():
		return nil
	}
	listener, err := net.Listen("tcp", p.listen)
	if err != nil {
		return fmt.Errorf("config discovery service: %w", err)
	}
	p.log.Info("config discovery service", "address", listener.Addr())
	return p.server.Serve(ctx, listener)
}
