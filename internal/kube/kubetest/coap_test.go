package kubetest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/status"
	"github.com/weir-lb/weir/internal/kube/kubelab"
	"github.com/weir-lb/weir/internal/kube/kubetest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

const namespace = "coap"

// cluster is the StatefulSet of the manifests, running.
type cluster struct {
	t       *testing.T
	plane   *kubetest.ControlPlane
	kubelet *kubetest.Kubelet
}

// secrets are what the manifests expect: the secret between nodes, and a client's key.
func secrets() []byte {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `
apiVersion: v1
kind: Namespace
metadata: {name: coap}
---
apiVersion: v1
kind: Secret
metadata: {name: coap-cluster}
stringData: {identity: cid-cluster-manager, secret: %s}
---
apiVersion: v1
kind: Secret
metadata: {name: coap-keys}
stringData: {psk.txt: "device=%s\n"}
`, encode([]byte("sixteen bytes or more")), encode([]byte("key of the device")))
}

// state is what a Pod's node says of the cluster: that which `weir coap cluster show` shows, without a process for each look.
func (c *cluster) state(name string) (n v1.CoAPClusterNode, err error) {
	pod := c.kubelet.Pod(namespace + "/" + name)
	if pod == nil {
		return n, fmt.Errorf("%s does not run", name)
	}
	address, err := pod.Admin("/run/weir/coap.sock")
	if err != nil {
		return n, fmt.Errorf("%s: %w", name, err)
	}
	now, err := client.New(address, "", "coap").CoAPStatus(c.t.Context())
	if err != nil {
		return n, fmt.Errorf("%s: %w", name, err)
	}
	view := status.ClusterOf(now)
	if len(view.Nodes) != 1 {
		return n, fmt.Errorf("%s: %d nodes", name, len(view.Nodes))
	}
	return view.Nodes[0], nil
}

// shows runs `weir coap cluster show` inside a Pod.
func (c *cluster) shows(name string, members int) {
	c.t.Helper()
	out, err := c.kubelet.Pod(namespace+"/"+name).Command("/usr/bin/weir", "coap", "cluster", "show", "--json")
	clitest.Must(c.t, err)
	var view v1.CoAPClusterView
	if err := clitest.ReadStrictly([]byte(out), &view); err != nil || len(view.Nodes) != 1 || len(view.Nodes[0].Members) != members {
		c.t.Errorf("%s: %v: %s", name, err, out)
	}
}

// awaitMembers waits until every Pod of the StatefulSet knows exactly the others, at the addresses that they have, over secured links.
func (c *cluster) awaitMembers(count int) {
	c.t.Helper()
	wrong := ""
	netlabtest.Eventually(c.t, fmt.Sprintf("%d Pods know each other", count), func() bool {
		wrong = c.wrong(count)
		return wrong == ""
	}, func() string { return wrong })
}

// wrong says what is not as awaitMembers wants it.
func (c *cluster) wrong(count int) string {
	addresses := map[uint32]string{}
	for i := range count {
		pod := c.kubelet.Pod(fmt.Sprintf("%s/coap-%d", namespace, i))
		if pod == nil {
			return fmt.Sprintf("coap-%d does not run", i)
		}
		addresses[uint32(i)] = netip.AddrPortFrom(pod.Slot.Address, 5884).String()
	}
	for i := range count {
		n, err := c.state(fmt.Sprintf("coap-%d", i))
		if err != nil {
			return err.Error()
		}
		known := 0
		for _, m := range n.Members {
			if m.State == "up" && m.Secured && m.ID != nil && addresses[*m.ID] == m.Management {
				known++
			}
		}
		if n.ID != uint32(i) || known != count-1 || len(n.Members) != count {
			return fmt.Sprintf("coap-%d: %+v", i, n.Members)
		}
	}
	return ""
}

// awaitReady waits until so many Pods are Ready, as the API server says, and no others are there.
func (c *cluster) awaitReady(count int) {
	c.t.Helper()
	var list corev1.PodList
	netlabtest.Eventually(c.t, fmt.Sprintf("%d Pods are Ready", count), func() bool {
		if err := c.plane.Get("/api/v1/namespaces/"+namespace+"/pods", &list); err != nil || len(list.Items) != count {
			return false
		}
		for i := range list.Items {
			ready := false
			for _, condition := range list.Items[i].Status.Conditions {
				ready = ready || condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
			}
			if !ready {
				return false
			}
		}
		return true
	}, func() string { text, _ := json.Marshal(list); return string(text) })
}

// restartOwner deletes the Pod that owns the sessions, as a rolling update does: they move to another node, and return when it is back at
// another address.
func (c *cluster) restartOwner() {
	c.t.Helper()
	const owner = "coap-0"
	before := c.kubelet.Pod(namespace + "/" + owner)
	clitest.Must(c.t, c.plane.Delete("/api/v1/namespaces/coap/pods/"+owner, -1))
	netlabtest.Eventually(c.t, "the owner is back, with its sessions", func() bool {
		pod := c.kubelet.Pod(namespace + "/" + owner)
		if pod == nil || pod == before {
			return false
		}
		n, err := c.state(owner)
		return err == nil && n.Sessions == clients
	}, before.Output)
	if after := c.kubelet.Pod(namespace + "/" + owner); after.Slot.Address == before.Slot.Address {
		c.t.Errorf("%s is back at %s", owner, after.Slot.Address)
	}
	c.awaitReady(4)
	c.awaitMembers(4)
}

// crashOwner kills the Pod that owns the sessions, with its memory: its buddy takes them over, as the nodes agree in Leases, and they return
// when the Pod is back.
func (c *cluster) crashOwner() {
	c.t.Helper()
	const owner = "coap-0"
	pod := c.kubelet.Pod(namespace + "/" + owner)
	copied := func() (n v1.CoAPClusterNode, ok bool) {
		n, err := c.state(owner)
		return n, err == nil && n.Sessions == clients && n.Copies != nil && n.Copies.Buddy != nil && n.Copies.Sessions == clients && n.Copies.Behind == 0
	}
	netlabtest.Eventually(c.t, "all sessions are copied", func() bool { _, ok := copied(); return ok }, pod.Output)
	before, _ := copied()
	clitest.Must(c.t, pod.Kill())
	taken := func() (sessions uint64, text string) {
		for i := 1; i < 4; i++ {
			if n, err := c.state(fmt.Sprintf("coap-%d", i)); err == nil && n.Copies != nil {
				sessions += n.Copies.TakenOver
				text += fmt.Sprintf("%d: %+v\n", i, *n.Copies)
			}
		}
		return sessions, text
	}
	netlabtest.Eventually(c.t, "the buddy has the sessions", func() bool { n, _ := taken(); return n == clients }, func() string { _, text := taken(); return text })
	node, boot, _ := strings.Cut(before.Copies.Process, "/")
	lease := fmt.Sprintf("coap-%s-%016s", node, boot)
	var held coordinationv1.Lease
	clitest.Must(c.t, c.plane.Get("/apis/coordination.k8s.io/v1/namespaces/coap/leases/"+lease, &held))
	if want := fmt.Sprintf("node %d", *before.Copies.Buddy); held.Spec.HolderIdentity == nil || *held.Spec.HolderIdentity != want {
		c.t.Errorf("Lease %s: %+v, want the holder %s", lease, held.Spec, want)
	}
	netlabtest.Eventually(c.t, "the owner is back, with its sessions", func() bool {
		n, err := c.state(owner)
		return err == nil && n.Sessions == clients && n.Copies.Process != before.Copies.Process
	}, pod.Output)
	c.awaitReady(4)
	c.awaitMembers(4)
}

func (c *cluster) scale(replicas int) {
	c.t.Helper()
	clitest.Must(c.t, c.plane.Merge("/apis/apps/v1/namespaces/coap/statefulsets/coap", fmt.Sprintf(`{"spec": {"replicas": %d}}`, replicas)))
}

// The manifests of deploy, applied to a real API server: its StatefulSet's Pods, processes of the image in namespaces of their own, find
// each other with the service account's token and role. Pods come, go, return at other addresses and are killed; sessions go on at their
// owner through another Pod each time, move away and back when that one is restarted, and are taken over by its buddy when it crashes.
func TestRootCoAPPods(t *testing.T) {
	clitest.TakesSeconds(t)
	netlabtest.Root(t)
	lab, pods := network(t)
	plane := kubetest.Start(t, lab.Namespace("node"), netip.MustParseAddr(kubelab.NodeAddress))
	image := image(t)
	manifests, err := os.ReadFile(filepath.Join(root, "deploy/coap-manifests.yaml"))
	clitest.Must(t, err)
	clitest.Must(t, plane.Apply(namespace, secrets(), false))
	clitest.Must(t, plane.Apply(namespace, manifests, true))
	clitest.Must(t, plane.Apply(namespace, []byte(tool(t, "render", "-chart", absolute(t, "deploy/coap"))), true))
	if err := plane.Apply(namespace, bytes.Replace(manifests, []byte("failureThreshold"), []byte("failureThreshhold"), 1), true); err == nil || !strings.Contains(err.Error(), "failureThreshhold") {
		t.Errorf("a field that does not exist: %v", err)
	}
	clitest.Must(t, plane.Apply(namespace, manifests, false))
	c := &cluster{t: t, plane: plane, kubelet: plane.Kubelet(image, pods)}
	c.awaitReady(3)
	c.awaitMembers(3)
	c.shows("coap-0", 3)
	probes(t, c.kubelet.Pod(namespace+"/coap-0"))

	load := newLoad(t, c, lab.Namespace("client"), filepath.Join(image, "usr/bin/weir"))
	load.through(c, "coap-1")

	c.scale(4)
	c.awaitReady(4)
	c.awaitMembers(4)
	load.through(c, "coap-3")

	before := c.kubelet.Pod(namespace + "/coap-1").Slot.Address
	clitest.Must(t, plane.Delete("/api/v1/namespaces/coap/pods/coap-1", 0))
	netlabtest.Eventually(t, "coap-1 is back", func() bool {
		pod := c.kubelet.Pod(namespace + "/coap-1")
		return pod != nil && pod.Slot.Address != before
	})
	c.awaitReady(4)
	c.awaitMembers(4)
	load.through(c, "coap-1")

	clitest.Must(t, c.kubelet.Pod(namespace+"/coap-2").Kill())
	c.awaitReady(4)
	c.awaitMembers(4)
	load.through(c, "coap-2")

	c.restartOwner()
	load.through(c, "coap-1")

	c.crashOwner()
	load.through(c, "coap-2")

	resume := plane.Pause() // nodes need the API server for news alone
	load.through(c, "coap-3")
	c.awaitMembers(4)
	resume()

	load.through(c, "coap-1")
	c.scale(3)
	c.awaitReady(3)
	c.awaitMembers(3)
	load.end()
}

// probes runs the probes of the manifest against the server: they pass, and the path of each is one that says no when it should.
func probes(t *testing.T, pod *kubetest.Container) {
	t.Helper()
	container := &pod.Spec().Spec.Containers[0]
	for name, probe := range map[string]*corev1.Probe{"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			t.Errorf("there is no %s probe", name)
			continue
		}
		if err := kubelab.Probe(pod, probe); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		other := probe.DeepCopy()
		other.HTTPGet.Path += "-of-nothing"
		if kubelab.Probe(pod, other) == nil {
			t.Errorf("%s: any path passes", name)
		}
	}
}
