package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/kube/discovery"
	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/turn/authservice"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// publisher brings configurations to data planes by the discovery service.
type publisher struct {
	listen string
	log    *slog.Logger
	server *discovery.Server
	auth   *authservice.Service // nil: there is none
	authAt string               // HOST:PORT of auth
	once   sync.Once
	first  chan struct{} // closed when there are configurations

	mu    sync.Mutex
	nodes map[string]string // external addresses
}

func newPublisher(o *Options) *publisher {
	p := &publisher{listen: o.Listen, auth: o.Auth, authAt: o.AuthListen, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), first: make(chan struct{}), nodes: map[string]string{}}
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
	texts := make([][]byte, 0, len(configs))
	for i := range configs {
		namespace, name, _ := strings.Cut(configs[i].Plane, "/")
		all[discovery.ID{Namespace: namespace, Name: name}] = configs[i].Text
		texts = append(texts, configs[i].Text)
	}
	err := p.server.Replace(all)
	if p.auth != nil {
		p.auth.Replace(texts)
	}
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
	if p.auth == nil {
		return p.server.Serve(ctx, listener)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	group.Go(func() { cancel(p.serveAuth(ctx)) })
	err = p.server.Serve(ctx, listener)
	cancel(err)
	group.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// serveAuth answers requests for credentials until ctx ends.
func (p *publisher) serveAuth(ctx context.Context) error {
	const maxConnections = 256
	listener, err := net.Listen("tcp", p.authAt)
	if err != nil {
		return fmt.Errorf("authentication service: %w", err)
	}
	p.log.Info("authentication service", "address", listener.Addr())
	server := &http.Server{
		Handler: p.auth.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(netutil.LimitListener(listener, maxConnections)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("authentication service at %v: %w", listener.Addr(), err)
	}
	return nil
}
