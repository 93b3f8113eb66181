package kubetest_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
	turnload "github.com/weir-lb/weir/internal/turn/load"
)

// calls are allocations at one Pod, with datagrams both ways all the time: in rounds, each of some datagrams of every allocation.
type calls struct {
	t      *testing.T
	load   *turnload.Load
	stop   atomic.Bool
	rounds chan *turnload.Report // closed when no more come
	err    error                 // why; read once rounds is closed

	count, up, down uint64 // allocations, and datagrams that arrived
}

// call makes allocations at a Pod and begins to send, until hangUp.
func (c *turnCluster) call(pod *corev1.Pod, count int, port uint16) *calls {
	c.t.Helper()
	l := &calls{t: c.t, rounds: make(chan *turnload.Report, 10000), count: uint64(count)}
	clitest.Must(c.t, c.client.Do(func() (err error) {
		l.load, err = turnload.Open(c.t.Context(), turnload.Config{
			Server: netip.AddrPortFrom(netip.MustParseAddr(pod.Status.PodIP), 3478), User: "user-1", Password: "pass-1", Clients: count, Size: 100, Burst: 1,
			Source: netip.MustParseAddr(clientAddress), Sink: netip.AddrPortFrom(netip.MustParseAddr(clientAddress), port), Timeout: 30 * time.Second,
		})
		return err
	}))
	go func() {
		defer close(l.rounds)
		for !l.stop.Load() && l.err == nil {
			var report *turnload.Report
			if report, l.err = l.load.Run(c.t.Context(), turnload.Phase{Rate: 4 * float64(count), Count: 2 * uint64(count), Direction: turnload.Both, Silence: 10 * time.Second}); l.err == nil {
				l.rounds <- report
			}
		}
	}()
	return l
}

// round checks one: every allocation has carried datagrams both ways, and none was lost.
func (l *calls) round(r *turnload.Report) {
	l.t.Helper()
	for name, flow := range map[string]turnload.Flow{"up": r.Up, "down": r.Down} {
		idle := 0
		for _, one := range flow.Connections {
			if one.Received == 0 {
				idle++
			}
		}
		if flow.Sum.Lost > 0 || idle > 0 || uint64(len(flow.Connections)) != l.count || len(r.Problems) > 0 {
			l.t.Errorf("%s: %d of %d datagrams lost, %d of %d allocations carried none, %v", name, flow.Sum.Lost, flow.Sum.Sent, idle, len(flow.Connections), r.Problems)
		}
	}
	l.up, l.down = l.up+r.Up.Sum.Received, l.down+r.Down.Sum.Received
}

// goOn waits for two rounds that end from now on: the second one has begun after it was called.
func (l *calls) goOn() {
	l.t.Helper()
	for done := len(l.rounds) + 2; done > 0; done-- {
		r, ok := <-l.rounds
		if !ok {
			l.t.Fatalf("the calls ended: %v", l.err)
		}
		l.round(r)
	}
}

// hangUp ends the calls.
func (l *calls) hangUp() {
	l.t.Helper()
	l.stop.Store(true)
	for r := range l.rounds {
		l.round(r)
	}
	if l.err != nil {
		l.t.Fatal(l.err)
	}
	l.t.Logf("%d allocations: %d datagrams up and %d down", l.count, l.up, l.down)
	clitest.Must(l.t, l.load.Close())
}

func (c *turnCluster) awaitEnding(pod *corev1.Pod) {
	c.t.Helper()
	netlabtest.Eventually(c.t, "Pod "+pod.Name+" ends", func() bool {
		var now corev1.Pod
		return c.plane.Get("/api/v1/namespaces/media/pods/"+pod.Name, &now) == nil && now.DeletionTimestamp != nil
	})
}

func (c *turnCluster) awaitGone(pod *corev1.Pod) {
	c.t.Helper()
	netlabtest.Eventually(c.t, "Pod "+pod.Name+" is gone", func() bool { return c.kubelet.Pod("media/"+pod.Name) == nil }, func() string { return c.output("media") })
}

// roll replaces the Pod of the Gateway while 200 allocations of it are in use: they stay until they are ended, and the Pod after them.
func (c *turnCluster) roll() {
	c.t.Helper()
	old := c.awaitReady("udp-gateway", 1)[0]
	l := c.call(&old, 200, 9100)
	clitest.Must(c.t, c.plane.Merge("/apis/stunner.l7mp.io/v1/dataplanes/default", `{"spec": {"annotations": {"rolled": "once"}}}`))
	c.awaitEnding(&old)
	next := c.awaitReady("udp-gateway", 1)[0]
	if next.Name == old.Name || next.Annotations["rolled"] != "once" {
		c.t.Errorf("Pod %s with %v", next.Name, next.Annotations)
	}
	l.goOn()
	if c.kubelet.Pod("media/"+old.Name) == nil {
		c.t.Error("the Pod has ended before its allocations")
	}
	if out := c.cat(fmt.Sprintf("turn://user-1:pass-1@%s:3478", next.Status.PodIP)); !strings.Contains(out, "through the gateway") {
		c.t.Errorf("the new Pod does not serve: %s", out)
	}
	l.hangUp()
	c.awaitGone(&old)
}

// scale makes three Pods of one, which the operator leaves alone, and one of three, while all have allocations.
func (c *turnCluster) scale() {
	c.t.Helper()
	deployment := "/apis/apps/v1/namespaces/media/deployments/udp-gateway"
	clitest.Must(c.t, c.plane.Merge(deployment, `{"spec": {"replicas": 3}}`))
	pods := c.awaitReady("udp-gateway", 3)
	clitest.Must(c.t, c.plane.Merge("/apis/gateway.networking.k8s.io/v1/namespaces/media/gateways/udp-gateway", `{"metadata": {"annotations": {"example.com/rendered": "again"}}}`))
	netlabtest.Eventually(c.t, "the operator renders again", func() bool {
		var s corev1.Service
		return c.plane.Get("/api/v1/namespaces/media/services/udp-gateway", &s) == nil && s.Annotations["example.com/rendered"] == "again"
	})
	c.awaitReady("udp-gateway", 3)
	var all []*calls
	for i := range pods {
		all = append(all, c.call(&pods[i], 50, uint16(9200+i)))
	}
	clitest.Must(c.t, c.plane.Merge(deployment, `{"spec": {"replicas": 1}}`))
	rest := c.awaitReady("udp-gateway", 1)[0]
	for i := range all {
		all[i].goOn()
	}
	for i := range all {
		if c.kubelet.Pod("media/"+pods[i].Name) == nil {
			c.t.Errorf("Pod %s has ended before its allocations", pods[i].Name)
		}
		all[i].hangUp()
	}
	for i := range pods {
		if pods[i].Name != rest.Name {
			c.awaitGone(&pods[i])
		}
	}
}
