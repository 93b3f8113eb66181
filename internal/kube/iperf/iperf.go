// Package iperf runs an iperf 2 server in a cluster, for a measurement through a gateway: a Deployment, a Service, and a UDPRoute that lets clients
// of the gateway reach nothing but this server. They are in the namespace of the gateway, and are removed at the end.
//
//	weir turn cat ──► Gateway ──► UDPRoute: Service, port 5000 ──► Pod: iperf -s -u -e
//
// It needs the verbs patch and delete on deployments, services and udproutes.stunner.l7mp.io, and list on endpointslices.
// After a kill -9 the objects are left, with the label app.kubernetes.io/managed-by=weir-bench.
package iperf

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/weir-lb/weir/internal/kube/discovery"
)

const (
	port = 5000 // as in STUNner's benchmark

	managedBy = "weir-bench"

	// pause lies between two looks at the cluster.
	pause = 200 * time.Millisecond
	// closing is how long the removal may take.
	closing = 20 * time.Second
)

// Config says what to run.
type Config struct {
	Client  rest.Interface
	Gateway discovery.ID
	Image   string
	Pod     bool // the peer is the Pod, and not the cluster IP of the Service
	// Read returns the configuration of the gateway, which says when it has the route.
	Read func(context.Context) ([]byte, error)
}

// Server is a running server.
type Server struct {
	config Config
	name   string
	made   []string // paths of the objects
	peer   netip.AddrPort
}

// Start makes the objects, and waits until the server runs and the gateway is configured to let clients reach it.
func Start(ctx context.Context, c Config) (*Server, error) {
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // never fails
	s := &Server{config: c, name: "weir-bench-" + hex.EncodeToString(suffix)}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Peer is where clients of the gateway reach the server.
func (s *Server) Peer() netip.AddrPort { return s.peer }

func (s *Server) start(ctx context.Context) error {
	var service corev1.Service
	for _, o := range s.objects() {
		body, err := json.Marshal(o.content)
		if err != nil {
			return err
		}
		request := s.config.Client.Patch(types.ApplyPatchType).AbsPath(o.path).Param("fieldManager", managedBy).Param("force", "true").Body(body)
		text, err := request.Do(ctx).Raw()
		if err != nil {
			return refused("create "+o.what, err)
		}
		s.made = append(s.made, o.path)
		if o.what == "the Service" {
			if err := json.Unmarshal(text, &service); err != nil {
				return err
			}
		}
	}
	pod, err := s.pod(ctx)
	if err != nil {
		return err
	}
	address := pod.String()
	if !s.config.Pod {
		address = service.Spec.ClusterIP
	}
	peer, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("the Service of the iperf server has the cluster IP %q; write --peer pod", address)
	}
	s.peer = netip.AddrPortFrom(peer, port)
	return s.routed(ctx)
}

// object is one of the API server.
type object struct {
	what, path string
	content    map[string]any
}

// objects are what is made, in this order.
func (s *Server) objects() []object {
	type m = map[string]any
	labels := m{"app": s.name, "app.kubernetes.io/managed-by": managedBy}
	meta := m{"name": s.name, "namespace": s.config.Gateway.Namespace, "labels": labels}
	selector := m{"app": s.name}
	container := m{
		"name": "iperf", "image": s.config.Image, "command": []string{"iperf"}, "args": []string{"-s", "-u", "-e", "-p", fmt.Sprint(port)},
		"ports":           []m{{"containerPort": port, "protocol": "UDP"}},
		"securityContext": m{"allowPrivilegeEscalation": false, "capabilities": m{"drop": []string{"ALL"}}},
	}
	pod := m{
		"containers": []m{container}, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
		"securityContext": m{"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": m{"type": "RuntimeDefault"}},
	}
	in := func(group, plural string) string {
		return fmt.Sprintf("%s/namespaces/%s/%s/%s", group, s.config.Gateway.Namespace, plural, s.name)
	}
	return []object{
		{"the Deployment", in("/apis/apps/v1", "deployments"), m{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": m{
			"replicas": 1, "selector": m{"matchLabels": selector}, "template": m{"metadata": m{"labels": labels}, "spec": pod},
		}}},
		{"the Service", in("/api/v1", "services"), m{"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": m{
			"selector": selector, "ports": []m{{"name": "iperf", "port": port, "protocol": "UDP"}},
		}}},
		{"the UDPRoute", in("/apis/stunner.l7mp.io/v1", "udproutes"), m{"apiVersion": "stunner.l7mp.io/v1", "kind": "UDPRoute", "metadata": meta, "spec": m{
			"parentRefs": []m{{"name": s.config.Gateway.Name}}, "rules": []m{{"backendRefs": []m{{"name": s.name, "port": port}}}},
		}}},
	}
}

// pod waits until the server's Pod is ready, and returns its address.
func (s *Server) pod(ctx context.Context) (address netip.Addr, err error) {
	path := fmt.Sprintf("/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices", s.config.Gateway.Namespace)
	err = until(ctx, "the Pod of the iperf server is not ready", func() error {
		text, err := s.config.Client.Get().AbsPath(path).Param("labelSelector", discoveryv1.LabelServiceName+"="+s.name).Do(ctx).Raw()
		if err != nil {
			return refused("list EndpointSlices", err)
		}
		var list discoveryv1.EndpointSliceList
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		for i := range list.Items {
			for _, e := range list.Items[i].Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready && len(e.Addresses) > 0 {
					address, err = netip.ParseAddr(e.Addresses[0])
					return err
				}
			}
		}
		return errNotYet
	})
	return address, err
}

// routed waits until the configuration of the gateway has the peer.
func (s *Server) routed(ctx context.Context) error {
	what := fmt.Sprintf("the configuration of %v does not have the route; see `kubectl -n %s describe udproute %s`", s.config.Gateway, s.config.Gateway.Namespace, s.name)
	return until(ctx, what, func() error {
		text, err := s.config.Read(ctx)
		if err != nil {
			return err
		}
		var config struct {
			Clusters []struct{ Endpoints []string }
		}
		if err := json.Unmarshal(text, &config); err != nil {
			return err
		}
		for _, cluster := range config.Clusters {
			if slices.ContainsFunc(cluster.Endpoints, func(e string) bool {
				host, _, _ := strings.Cut(e, ":<")
				return host == s.peer.Addr().String()
			}) {
				return nil
			}
		}
		return errNotYet
	})
}

var errNotYet = errors.New("not yet")

// until tries again while it is not yet so.
func until(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if !errors.Is(err, errNotYet) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Close removes what was made.
func (s *Server) Close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	for _, path := range slices.Backward(s.made) {
		wrong := s.config.Client.Delete().AbsPath(path).Body([]byte(`{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}`)).Do(ctx).Error()
		if wrong != nil && !apierrors.IsNotFound(wrong) {
			err = errors.Join(err, refused("remove "+path, wrong))
		}
	}
	return err
}

// refused names the right that lacks.
func refused(what string, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: %w; the benchmark needs the verbs patch and delete on deployments, services and udproutes.stunner.l7mp.io, and list on endpointslices", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
