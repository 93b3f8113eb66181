package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// KubeSessionsConfig says how many sessions live while the parts of a cluster are replaced.
type KubeSessionsConfig struct {
	Run
	Flows       int           // through the load balancer: a quarter UDP, a quarter TCP, half DTLS
	Allocations int           // of the TURN gateway; 0: it is not measured
	Every       time.Duration // from the end of an event to the next one
	Gone        time.Duration // how long the API server is away
	Events      []string      // names of KubeEvents; empty: all
}

// Validate says what cannot be meant.
func (c *KubeSessionsConfig) Validate() error {
	switch {
	case c.Flows < 4 || c.Flows > 20_000:
		return fmt.Errorf("--flows %d: give 4 to 20000", c.Flows)
	case c.Allocations < 0 || c.Allocations > 5000:
		return fmt.Errorf("--allocations %d: give 0 to 5000", c.Allocations)
	case c.Every < 100*time.Millisecond || c.Every > time.Hour:
		return fmt.Errorf("--every %v: give 100ms to 1h", c.Every)
	case c.Gone < time.Second || c.Gone > time.Hour:
		return fmt.Errorf("--gone %v: give 1s to 1h", c.Gone)
	}
	return knownNames("event", c.Events, namesOf(kubeEvents()))
}

// kubeEvent is something that happens to the cluster.
type kubeEvent struct {
	name, about string
	turn        bool // it is about TURN gateways
	happen      func(k *kubeSessions) error
}

func (e kubeEvent) describe() (name, about string) { return e.name, e.about }

func kubeEvents() []kubeEvent {
	return []kubeEvent{
		{name: "none", about: "nothing happens: the load alone", happen: func(*kubeSessions) error { return nil }},
		{name: "balancer-restart", about: "SIGTERM to the load balancer, then a new start, as of a DaemonSet's Pod", happen: (*kubeSessions).restartBalancer},
		{name: "balancer-kill", about: "kill -9 of the load balancer, then a new start", happen: (*kubeSessions).killBalancer},
		{name: "operator-kill", about: "kill -9 of the operator, then a new start", happen: (*kubeSessions).killOperator},
		{name: "api-gone", about: "the API server is killed and starts again later; meanwhile the load balancer is restarted", happen: (*kubeSessions).loseAPI},
		{name: "scale-in", about: "the servers of the flows are scaled from 3 to 1: two end, and keep the flows they have", happen: (*kubeSessions).scaleIn},
		{name: "scale-out", about: "from 1 to 3 again", happen: (*kubeSessions).scaleOut},
		{name: "servers-roll", about: "a rolling update of all servers of the flows", happen: (*kubeSessions).rollServers},
		{name: "turn-roll", about: "a rolling update of the TURN gateways", turn: true, happen: (*kubeSessions).rollTurn},
		{name: "turn-scale-in", about: "the TURN gateways are scaled from 3 to 1", turn: true, happen: (*kubeSessions).scaleTurnIn},
		{name: "turn-scale-out", about: "from 1 to 3 again", turn: true, happen: (*kubeSessions).scaleTurnOut},
	}
}

// KubeEvents describes what can happen, in the order in which it does: name, tab, what it is.
func KubeEvents() []string { return describe(kubeEvents()) }

// kubeSessions is one run.
type kubeSessions struct {
	*kubeCluster
	config  KubeSessionsConfig
	kubelet *kubelab.Kubelet
	vip     netip.Addr
	rolled  int
	load    *kubeLoad
}

const (
	kubeSlots    = 22
	kubeReplicas = 3
)

// KubeSessions lets parts of a cluster be replaced while sessions live, and counts those that are lost. It returns a result for each event.
func KubeSessions(ctx context.Context, config KubeSessionsConfig) (results []*measure.Result, err error) {
	if err := errors.Join(config.Validate(), kubelab.Available()); err != nil {
		return nil, err
	}
	topology := kubeTopology("benchkube")
	for i := range kubeSlots {
		plugPods(topology, fmt.Sprintf("pod%d", i), fmt.Sprintf("10.77.0.%d", 10+i))
	}
	cluster, err := openCluster(ctx, &config.Run, topology)
	if err != nil {
		return nil, err
	}
	k := &kubeSessions{kubeCluster: cluster, config: config, vip: netip.MustParseAddr("198.18.0.10")}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := k.start(); err != nil {
		return nil, err
	}
	if err := k.startLoad(); err != nil {
		return nil, err
	}
	defer k.load.stop()
	return k.run()
}

// start starts the Pods, the operator and the load balancer, and waits until all of them serve.
func (k *kubeSessions) start() error {
	image := filepath.Join(k.Dir, "image")
	if err := kubeImage(image, k.Binary); err != nil {
		return err
	}
	slots := make([]kubelab.Slot, kubeSlots)
	for i := range slots {
		slots[i] = kubelab.Slot{Host: k.Host(fmt.Sprintf("pod%d", i)), Address: netip.MustParseAddr(fmt.Sprintf("10.77.0.%d", 10+i))}
	}
	var err error
	if k.kubelet, err = k.plane.StartKubelet(kubelab.KubeletOptions{Image: image, Slots: slots, Listening: true}); err != nil {
		return err
	}
	k.Undo = append(k.Undo, func() error { k.kubelet.Stop(); return nil })
	for _, step := range []func() error{
		k.crds, k.launchOperator, k.startBalancer, func() error { return k.plane.Apply(kubeNamespace, []byte(k.objects()), false) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	if k.config.Allocations > 0 {
		if err := k.startTurn(); err != nil {
			return err
		}
	}
	if err := k.available("servers", kubeReplicas); err != nil {
		return err
	}
	for _, name := range k.dtlsServers() {
		if err := k.available(name, 1); err != nil {
			return err
		}
	}
	return k.serving()
}

func (k *kubeSessions) launchOperator() error {
	return k.startOperator("--discovery", kubeAddress+":13478", "--discovery-url", "http://"+kubeAddress+":13478", "--turn-image", "weir")
}

// environment are the variables that a program of ours may need to know that it is weir, as YAML.
func kubeEnvironment() string {
	text := "[{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}"
	for _, v := range os.Environ() {
		// The number of a process means nothing in a Pod.
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "WEIR_") && !strings.HasSuffix(name, "_PARENT") {
			text += fmt.Sprintf(", {name: %s, value: %q}", name, value)
		}
	}
	return text + "]"
}

// kubeDeployment is a Deployment of weir with arguments.
func kubeDeployment(name, app string, replicas int, nodes, args string) string {
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {deployment: %[1]s}}
  template:
    metadata: {labels: {deployment: %[1]s, app: %[5]s}, annotations: {weir-lb.github.io/node-ids: "%[6]s"}}
    spec:
      terminationGracePeriodSeconds: 3600
      containers: [{name: server, image: weir, command: [/usr/bin/weir], args: [%[3]s], env: %[4]s}]
`, name, replicas, args, kubeEnvironment(), app, nodes)
}

func (k *kubeSessions) objects() string {
	text := fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: weir
  addresses: [{type: IPAddress, value: %s}]
  listeners:
  - {name: udp, protocol: UDP, port: 7000}
  - {name: tcp, protocol: TCP, port: 7000}
  - {name: dtls, protocol: UDP, port: 5684}
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: udp}
spec: {parentRefs: [{name: edge, sectionName: udp}], rules: [{backendRefs: [{name: servers, port: 7001}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: tcp}
spec: {parentRefs: [{name: edge, sectionName: tcp}], rules: [{backendRefs: [{name: servers, port: 7000}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: UDPRoute
metadata: {name: dtls}
spec: {parentRefs: [{name: edge, sectionName: dtls}], rules: [{backendRefs: [{name: dtls, port: 5684}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: servers}
spec: {selector: {app: servers}, ports: [{name: udp, port: 7001, targetPort: 7000, protocol: UDP}, {name: tcp, port: 7000}]}
---
apiVersion: v1
kind: Service
metadata: {name: dtls}
spec: {selector: {app: dtls}, ports: [{port: 5684, protocol: UDP}]}
---
apiVersion: weir-lb.github.io/v1alpha1
kind: LoadBalancerPolicy
metadata: {name: dtls}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge, sectionName: dtls}]
  cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}], nodeIDs: {from: Annotation}}
`, k.vip) + kubeDeployment("servers", "servers", kubeReplicas, "255", `bench, traffic, respond, --at, "$(IP):7000", --name, $(POD)`)
	for i, name := range k.dtlsServers() {
		id := fmt.Sprint(i + 1)
		text += kubeDeployment(name, "dtls", 1, id, `coap, server, --dtls-only, --dtls, "$(IP):5684", --workers, "1", --no-supervisor, --node-id, "`+id+`"`)
	}
	return text
}

// dtlsServers are the Deployments of DTLS servers, each of one Pod with a node id.
func (k *kubeSessions) dtlsServers() []string { return []string{"dtls1", "dtls2", "dtls3"} }

func deploymentPath(name string) string {
	return "/apis/apps/v1/namespaces/" + kubeNamespace + "/deployments/" + name
}

// available waits until so many Pods of a Deployment, of its present template and no others, are available.
func (k *kubeSessions) available(name string, count int32) error {
	var d appsv1.Deployment
	err := k.plane.Await(fmt.Sprintf("%d Pods of Deployment %s are available", count, name), func() bool {
		d = appsv1.Deployment{}
		return k.plane.Get(deploymentPath(name), &d) == nil && d.Status.ObservedGeneration == d.Generation &&
			d.Status.AvailableReplicas == count && d.Status.UpdatedReplicas == count && d.Status.Replicas == count
	})
	if err != nil {
		return fmt.Errorf("%w: %+v%s%s", err, d.Status, k.pods(), k.operator.LastOutput())
	}
	return nil
}

// pods is what the Pods wrote last, for errors.
func (k *kubeSessions) pods() (text string) {
	var list corev1.PodList
	if k.plane.Get("/api/v1/pods", &list) != nil {
		return ""
	}
	for i := range list.Items {
		name := list.Items[i].Namespace + "/" + list.Items[i].Name
		if pod := k.kubelet.Pod(name); pod != nil {
			output := pod.Output()
			text += fmt.Sprintf("\n%s %s: %s", name, pod.Slot.Address, output[max(0, len(output)-300):])
		} else {
			text += fmt.Sprintf("\n%s does not run", name)
		}
	}
	return text
}

// serving waits until the load balancer forwards flows of each kind.
func (k *kubeSessions) serving() (err error) {
	if err = k.plane.Await("flows are answered", func() bool { err = k.tryFlows(1); return err == nil }); err != nil {
		return fmt.Errorf("%w%s%s", err, k.operator.LastOutput(), k.balancer.LastOutput())
	}
	return nil
}

// tryFlows opens new flows of UDP and TCP.
func (k *kubeSessions) tryFlows(n int) error {
	for i := range 2 * n {
		f, err := openFlow(k.Host(kubeClient), netip.Addr{}, netip.AddrPortFrom(k.vip, 7000), i%2 == 1)
		if err != nil {
			return err
		}
		_, _, err = f.query(k.ctx)
		f.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// retire takes a daemon out of those that have to run.
func (k *kubeSessions) retire(d *programs.Daemon) {
	for i := range k.Daemons {
		if k.Daemons[i] == d {
			k.Daemons = append(k.Daemons[:i], k.Daemons[i+1:]...)
			return
		}
	}
}

func (k *kubeSessions) restartBalancer() error {
	k.retire(k.balancer)
	return errors.Join(k.balancer.Stop(), k.startBalancer())
}

func (k *kubeSessions) killBalancer() error {
	k.retire(k.balancer)
	k.balancer.Kill()
	return k.startBalancer()
}

func (k *kubeSessions) killOperator() error {
	k.retire(k.operator)
	k.operator.Kill()
	return k.launchOperator()
}

func (k *kubeSessions) loseAPI() error {
	again, err := k.plane.Kill()
	if err != nil {
		return err
	}
	half := k.config.Gone / 2
	if err := errors.Join(programs.Sleep(k.ctx, half), k.restartBalancer(), programs.Sleep(k.ctx, half), again()); err != nil {
		return err
	}
	return k.plane.Merge(deploymentPath("dtls1"), `{"metadata": {"annotations": {"example.com/after": "the API server is back"}}}`)
}

func (k *kubeSessions) scale(name string, count int32) error {
	if err := k.plane.Merge(deploymentPath(name), fmt.Sprintf(`{"spec": {"replicas": %d}}`, count)); err != nil {
		return err
	}
	return k.available(name, count)
}

func (k *kubeSessions) scaleIn() error  { return k.scale("servers", 1) }
func (k *kubeSessions) scaleOut() error { return k.scale("servers", kubeReplicas) }

func (k *kubeSessions) rollServers() error {
	k.rolled++
	if err := k.plane.Merge(deploymentPath("servers"), fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {"rolled": "%d"}}}}}`, k.rolled)); err != nil {
		return err
	}
	return k.available("servers", kubeReplicas)
}
