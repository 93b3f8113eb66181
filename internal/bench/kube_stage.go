package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// The network of a cluster: the machine of its control plane, operator and load balancer, the Pods, and clients outside.
const (
	kubeControl   = "control"
	kubeClient    = "client"
	kubeAddress   = "10.77.255.1" // of the control plane, on the segment of the Pods
	kubePool      = "198.18.0.0/15"
	kubeNamespace = "bench"
	kubeDiscovery = "127.0.0.1:13479"
)

// kubeCluster is a control plane, an operator and a load balancer in the kernel.
type kubeCluster struct {
	*programs.Stage
	ctx      context.Context
	plane    *kubelab.ControlPlane
	operator *programs.Daemon
	balancer *programs.Daemon
	config   string // kubeconfig of the operator
	pins     string
}

// kubeTopology is a control plane's machine, which forwards between clients and Pods.
func kubeTopology(name string) *netlab.Topology {
	return &netlab.Topology{
		Name: name, Namespaces: []netlab.Namespace{
			{Name: kubeControl, Forward: true, Bridges: []netlab.Bridge{{Name: "pods", Addresses: netlab.Prefixes(kubeAddress + "/16")}}},
			{Name: kubeClient, Routes: netlab.Default("10.78.0.1")},
		},
		Links: []netlab.Link{netlab.Cable(kubeControl+" outside 10.78.0.1/16", kubeClient+" eth0 10.78.0.2/16")},
	}
}

// plugPods adds a namespace to the segment of the Pods.
func plugPods(t *netlab.Topology, name, address string, routes ...netlab.Route) {
	t.Namespaces = append(t.Namespaces, netlab.Namespace{Name: name, Routes: append(netlab.Default(kubeAddress), routes...)})
	link := netlab.Cable(kubeControl+" to"+name, name+" eth0 "+address+"/16")
	link.A.Bridge = "pods"
	t.Links = append(t.Links, link)
}

// openCluster starts a control plane with the CRDs of the Gateway API. Its user closes it.
func openCluster(ctx context.Context, run *Run, topology *netlab.Topology) (c *kubeCluster, err error) {
	c = &kubeCluster{ctx: ctx}
	if c.Stage, err = programs.OpenStage(run.Binary, topology); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	files := filepath.Join(c.Dir, "kubernetes")
	if err := os.Mkdir(files, 0o700); err != nil {
		return nil, err
	}
	run.progress(0, "starting the control plane")
	c.plane, err = kubelab.Start(ctx, kubelab.Options{Host: c.Host(kubeControl), Address: netip.MustParseAddr(kubeAddress), Files: files, Log: func(string, ...any) {}})
	if err != nil {
		return nil, err
	}
	c.Undo = append(c.Undo, func() error { c.plane.Stop(); return nil })
	if err := c.plane.GatewayAPI(); err != nil {
		return nil, fmt.Errorf("the CRDs of the Gateway API, in the directory of Weir's source: %w", err)
	}
	return c, c.account()
}

// account makes the operator's service account, by which the audit log knows its requests.
func (c *kubeCluster) account() error {
	if err := c.plane.Apply(kubeNamespace, fmt.Appendf(nil, `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: operator, namespace: %[1]s}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: weir}
spec: {controllerName: weir-lb.github.io/l4}
`, kubeNamespace), false); err != nil {
		return err
	}
	token, err := c.plane.Token(kubeNamespace, "operator")
	if err != nil {
		return err
	}
	c.config = filepath.Join(c.Dir, "operator.kubeconfig")
	return os.WriteFile(c.config, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://%s", "certificate-authority": %q}}], "users": [{"name": "u", "user": {"token": %q}}]}`,
		c.plane.Address(), c.plane.CAFile(), token), 0o600)
}

// startOperator starts the operator, also again.
func (c *kubeCluster) startOperator(more ...string) (err error) {
	c.operator, err = c.Daemon(c.ctx, kubeControl, "operator", append([]string{
		"operator", "--kubeconfig", c.config, "--address-pool", kubePool, "--lb-discovery", kubeDiscovery, "--discovery", "127.0.0.1:13478",
	}, more...)...)
	return err
}

// startBalancer starts the load balancer, also again: it takes the pinned tables and programs over.
func (c *kubeCluster) startBalancer() (err error) {
	if c.pins == "" {
		c.pins = programs.PinPath("kube")
		c.Undo = append(c.Undo, func() error { return programs.StopWeir(c.ctx, c.Running, c.Binary, c.Host(kubeControl), c.pins) })
	}
	c.balancer, err = c.Daemon(c.ctx, kubeControl, "balancer", "lb", "run", "--datapath", "ebpf", "--hook", "tcx", "--interface", "outside,pods",
		"--source", "http://"+kubeDiscovery, "--node", "a", "--state", filepath.Join(c.Dir, "lb.json"), "--pin-path", c.pins)
	return err
}

// each calls do for 0 to n-1, some at a time, and returns the first error.
func each(n int, do func(i int) error) error {
	const workers = 8
	var group sync.WaitGroup
	var mu sync.Mutex
	var first error
	next := 0
	for range workers {
		group.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				failed := first != nil
				mu.Unlock()
				if i >= n || failed {
					return
				}
				if err := do(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return first
}
