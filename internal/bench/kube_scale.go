package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// KubeScaleConfig says how large a cluster is and how much of it changes.
type KubeScaleConfig struct {
	Run
	Gateways  int // each with a UDPRoute, a Service and its EndpointSlice
	Endpoints int // of each Service
	Rate      int // changes of endpoints a second
	Duration  time.Duration
}

// Validate says what cannot be meant.
func (c *KubeScaleConfig) Validate() error {
	switch {
	case c.Gateways < kubeProbes+1 || c.Gateways > 1023:
		return fmt.Errorf("--gateways %d: give %d to 1023", c.Gateways, kubeProbes+1)
	case c.Endpoints < 1 || c.Endpoints > 60:
		return fmt.Errorf("--endpoints %d: give 1 to 60", c.Endpoints)
	case c.Rate < 10 || c.Rate > 1000:
		return fmt.Errorf("--rate %d: give 10 to 1000", c.Rate)
	case c.Duration < 2*time.Second || c.Duration > time.Hour:
		return fmt.Errorf("--duration %v: give 2s to 1h", c.Duration)
	}
	return nil
}

const (
	kubeProbes = 20 // Gateways whose only endpoint is a Pod that becomes ready again and again
	// Of the changes a second, one in probeShare is a Pod that becomes ready, and one in probeShare that it ceases to be.
	probeShare = 20
	probePort  = 8080
	probeVIP   = 5300
)

// kubeScale is one run.
type kubeScale struct {
	*kubeCluster
	config  KubeScaleConfig
	sink    *probeSink
	mu      sync.Mutex // guards latency
	latency *measure.Latency
	ready   []atomic.Int64 // of each endpoint list, which one is left out
	changes atomic.Uint64  // made
	failed  atomic.Uint64
	stale   atomic.Uint64 // measurements in which the Pod was still served from the time before
	lost    atomic.Uint64 // in which no datagram came through
	slow    atomic.Uint64 // changes that were not made in time
}

// kubeScaleTopology has one namespace for the addresses of all Pods.
func kubeScaleTopology() *netlab.Topology {
	t := kubeTopology("benchkube")
	t.Namespaces[0].Routes = []netlab.Route{{To: netip.MustParsePrefix("10.128.0.0/9"), Via: netip.MustParseAddr("10.77.0.2"), Dev: "pods"}}
	plugPods(t, "pods", "10.77.0.2", netlab.Route{To: netip.MustParsePrefix("10.128.0.0/9"), Dev: "lo", Local: true})
	return t
}

// KubeScale measures how long a Pod's readiness takes to the tables of the kernel, in a large cluster that changes.
func KubeScale(ctx context.Context, config KubeScaleConfig) (results []*measure.Result, err error) {
	if err := errors.Join(config.Validate(), kubelab.Available()); err != nil {
		return nil, err
	}
	cluster, err := openCluster(ctx, &config.Run, kubeScaleTopology())
	if err != nil {
		return nil, err
	}
	s := &kubeScale{kubeCluster: cluster, config: config, latency: measure.NewLatency(), ready: make([]atomic.Int64, config.Gateways)}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.fill(); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := errors.Join(s.startOperator(), s.startBalancer()); err != nil {
		return nil, err
	}
	if err := s.programmed(); err != nil {
		return nil, err
	}
	all := time.Since(began)
	if s.sink, err = openProbeSink(s.Host("pods")); err != nil {
		return nil, err
	}
	defer s.sink.close()
	result, err := s.measure()
	if err != nil {
		return nil, err
	}
	result.Figures = append(result.Figures, measure.Figure{Name: figureKubeAll, Value: all.Seconds(), Unit: "s"})
	return []*measure.Result{result}, nil
}

func gatewayName(i int) string { return fmt.Sprintf("g%04d", i) }

// gatewayAddress is the VIP of a Gateway.
func gatewayAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(1 + i>>8), byte(i)})
}

// endpointAddress is that of an endpoint of a Gateway's Service.
func endpointAddress(i, j int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 128 + byte(i>>8), byte(i), byte(1 + j)})
}

// fill makes the objects of the cluster. The first Gateways have a Pod; the others have endpoints that only this program writes.
func (s *kubeScale) fill() error {
	if err := s.plane.Create("/api/v1/nodes", `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "simulated"}}`); err != nil {
		return err
	}
	if err := s.plane.Await("the namespace has a service account", func() bool {
		var account struct{}
		return s.plane.Get("/api/v1/namespaces/"+kubeNamespace+"/serviceaccounts/default", &account) == nil
	}); err != nil {
		return err
	}
	var done atomic.Int64
	return each(s.config.Gateways, func(i int) error {
		s.config.progress(0.3*float64(done.Add(1))/float64(s.config.Gateways), "%d of %d Gateways are made", done.Load(), s.config.Gateways)
		return s.make(i)
	})
}

func (s *kubeScale) make(i int) error {
	name, in := gatewayName(i), "/namespaces/"+kubeNamespace
	selector := ""
	if i < kubeProbes {
		selector = fmt.Sprintf(`"selector": {"app": %q}, `, name)
	}
	objects := [][2]string{
		{"/apis/gateway.networking.k8s.io/v1" + in + "/gateways", fmt.Sprintf(`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": %q}, "spec": {"gatewayClassName": "weir",
			"addresses": [{"type": "IPAddress", "value": %q}], "listeners": [{"name": "udp", "protocol": "UDP", "port": %d}]}}`, name, gatewayAddress(i), probeVIP)},
		{"/apis/gateway.networking.k8s.io/v1" + in + "/udproutes", fmt.Sprintf(`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "UDPRoute", "metadata": {"name": %[1]q}, "spec": {
			"parentRefs": [{"name": %[1]q}], "rules": [{"backendRefs": [{"name": %[1]q, "port": %[2]d}]}]}}`, name, probePort)},
		{"/api/v1" + in + "/services", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q}, "spec": {%s"ports": [{"port": %d, "protocol": "UDP"}]}}`, name, selector, probePort)},
	}
	if i < kubeProbes {
		objects = append(objects, [2]string{"/api/v1" + in + "/pods", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %[1]q, "labels": {"app": %[1]q}}, "spec": {
			"nodeName": "simulated", "containers": [{"name": "c", "image": "c"}]}}`, name)})
	} else {
		objects = append(objects, [2]string{"/apis/discovery.k8s.io/v1" + in + "/endpointslices", fmt.Sprintf(`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": %[1]q,
			"labels": {"kubernetes.io/service-name": %[1]q, "endpointslice.kubernetes.io/managed-by": "weir-bench"}}, "addressType": "IPv4",
			"ports": [{"port": %[2]d, "protocol": "UDP", "name": ""}], "endpoints": %[3]s}`, name, probePort, s.endpoints(i, -1))})
	}
	for _, o := range objects {
		if err := s.plane.Create(o[0], o[1]); err != nil {
			return err
		}
	}
	if i < kubeProbes {
		return s.setReady(i, false)
	}
	return nil
}

// endpoints is the list of a slice, in which one is not ready; -1: all are.
func (s *kubeScale) endpoints(i, not int) string {
	text := "["
	for j := range s.config.Endpoints {
		if j > 0 {
			text += ", "
		}
		text += fmt.Sprintf(`{"addresses": [%q], "conditions": {"ready": %t}, "targetRef": {"kind": "Pod", "namespace": %q, "name": "%s-6d5f7c9b8d-%05d"}}`,
			endpointAddress(i, j), j != not, kubeNamespace, gatewayName(i), j)
	}
	return text + "]"
}

// setReady writes the readiness of the Pod of a Gateway.
func (s *kubeScale) setReady(i int, ready bool) error {
	status := map[bool]string{true: "True", false: "False"}[ready]
	address := endpointAddress(i, 0)
	return s.plane.Merge("/api/v1/namespaces/"+kubeNamespace+"/pods/"+gatewayName(i)+"/status", fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %[1]q, "podIPs": [{"ip": %[1]q}],
		"conditions": [{"type": "Ready", "status": %[2]q}, {"type": "ContainersReady", "status": %[2]q}]}}`, address, status))
}

// programmed waits until the load balancer has applied the whole cluster, and every Gateway says so.
func (s *kubeScale) programmed() error {
	limit := time.Now().Add(10 * time.Minute)
	for {
		var list struct {
			Items []struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		count := 0
		if err := s.plane.Get("/apis/gateway.networking.k8s.io/v1/namespaces/"+kubeNamespace+"/gateways", &list); err != nil {
			return err
		}
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == "Programmed" && c.Status == "True" {
					count++
				}
			}
		}
		if count == s.config.Gateways {
			return nil
		}
		s.config.progress(0.3+0.2*float64(count)/float64(s.config.Gateways), "%d of %d Gateways are programmed", count, s.config.Gateways)
		if err := s.Failure(); err != nil {
			return err
		}
		if time.Now().After(limit) {
			var status v1.OperatorStatus
			err := s.operator.Get(s.ctx, "/status", &status)
			return fmt.Errorf("%d of %d Gateways are programmed: %+v, %w%s%s", count, s.config.Gateways, status, err, s.operator.LastOutput(), s.balancer.LastOutput())
		}
		if err := programs.Sleep(s.ctx, time.Second); err != nil {
			return err
		}
	}
}

// measure changes endpoints for the duration.
func (s *kubeScale) measure() (*measure.Result, error) {
	before, err := s.spent()
	if err != nil {
		return nil, err
	}
	r := &measure.Result{
		Scenario: scenarioKubeScale, Path: "weir operator", Machine: machine(), Started: time.Now(), LoadBefore: procstat.LoadAverage(), Latency: s.latency,
		Parameters: map[string]string{
			"gateways": strconv.Itoa(s.config.Gateways), "endpoints": strconv.Itoa((s.config.Gateways-kubeProbes)*s.config.Endpoints + kubeProbes),
			"rate": strconv.Itoa(s.config.Rate), "duration": s.config.Duration.String(),
		},
	}
	s.change(r.Started)
	r.Elapsed = time.Since(r.Started)
	after, err := s.spent()
	if err != nil {
		return nil, err
	}
	s.fillResult(r, before, after)
	return r, s.Failure()
}

// change makes the changes at their times, and waits for those that are measured.
func (s *kubeScale) change(started time.Time) {
	interval := time.Second / time.Duration(s.config.Rate)
	due, slots := started, make(chan struct{}, 64)
	for n := 0; time.Since(started) < s.config.Duration; n++ {
		due = due.Add(interval)
		if programs.Sleep(s.ctx, time.Until(due)) != nil {
			break
		}
		if n%16 == 0 {
			s.config.progress(0.5+0.5*time.Since(started).Seconds()/s.config.Duration.Seconds(), "%d changes, p50 %v", s.changes.Load(), s.median())
		}
		select {
		case slots <- struct{}{}:
		default:
			s.slow.Add(1)
			slots <- struct{}{}
		}
		go func() {
			defer func() { <-slots }()
			s.one(n)
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}

// one makes a change: of a Pod's readiness, or of an endpoint of any Gateway.
func (s *kubeScale) one(n int) {
	turn := n / probeShare
	var err error
	switch n % probeShare {
	case 0:
		s.probe(turn % kubeProbes)
		return
	case probeShare / 2: // half a cycle after it became ready
		err = s.setReady((turn+kubeProbes/2)%kubeProbes, false)
	default:
		i := kubeProbes + rand.IntN(s.config.Gateways-kubeProbes) //nolint:gosec // any
		not := int(s.ready[i].Add(1)) % (s.config.Endpoints + 1)  // the last one: all are ready
		err = s.plane.Merge("/apis/discovery.k8s.io/v1/namespaces/"+kubeNamespace+"/endpointslices/"+gatewayName(i), `{"endpoints": `+s.endpoints(i, not)+`}`)
	}
	s.changed(err)
}

func (s *kubeScale) changed(err error) {
	if err != nil {
		s.failed.Add(1)
		return
	}
	s.changes.Add(1)
}

func (s *kubeScale) record(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency.Record(d)
}

func (s *kubeScale) median() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latency.Quantile(0.5).Round(time.Millisecond)
}
