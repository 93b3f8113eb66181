package kubedemo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	v1 "github.com/weir-lb/weir/api/v1"
)

// workload is what a Deployment, DaemonSet or StatefulSet says of its Pods.
type workload struct {
	Metadata struct{ Generation int64 }
	Spec     struct{ Replicas *int32 }
	Status   struct {
		ObservedGeneration int64
		// of a Deployment and a StatefulSet
		Replicas, UpdatedReplicas, AvailableReplicas, ReadyReplicas int32
		CurrentRevision, UpdateRevision                             string
		// of a DaemonSet
		DesiredNumberScheduled, UpdatedNumberScheduled, NumberAvailable int32
	}
}

func workloadPath(namespace, kind, name string) string {
	return "/apis/apps/v1/namespaces/" + namespace + "/" + kind + "/" + name
}

// rolled says whether all Pods of a workload are new and ready. Old ones of a Deployment may still end.
func (c *cluster) rolled(namespace, kind, name string) bool {
	var w workload
	if err := c.plane.Get(workloadPath(namespace, kind, name), &w); err != nil || w.Status.ObservedGeneration < w.Metadata.Generation {
		return false
	}
	s := &w.Status
	switch kind {
	case "daemonsets":
		return s.DesiredNumberScheduled > 0 && s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == s.DesiredNumberScheduled
	case "statefulsets":
		return s.UpdateRevision != "" && s.CurrentRevision == s.UpdateRevision && s.ReadyReplicas == *w.Spec.Replicas && s.AvailableReplicas == *w.Spec.Replicas
	}
	return s.UpdatedReplicas == *w.Spec.Replicas && s.AvailableReplicas >= *w.Spec.Replicas && s.Replicas == s.UpdatedReplicas
}

// restart replaces the Pods of a workload, as kubectl rollout restart does, and waits until the new ones are ready.
func (c *cluster) restart(ctx context.Context, namespace, kind, name string) error {
	if err := c.plane.Merge(workloadPath(namespace, kind, name), `{"spec": {"template": {"metadata": {"annotations": {"demo/restarted": "once"}}}}}`); err != nil {
		return err
	}
	return c.await(ctx, fmt.Sprintf("the Pods of %s %s are replaced", kind, name), func() bool { return c.rolled(namespace, kind, name) })
}

// pods are those of a namespace with a label.
func (c *cluster) pods(namespace, label, value string) (all []corev1.Pod) {
	var list corev1.PodList
	if err := c.plane.Get("/api/v1/namespaces/"+namespace+"/pods?labelSelector="+label+"%3D"+value, &list); err != nil {
		return nil
	}
	return list.Items
}

// kill kills the process of the only Pod with a label by SIGKILL, and waits until it runs and is ready again.
func (c *cluster) kill(ctx context.Context, namespace, label, value string) error {
	pods := c.pods(namespace, label, value)
	if len(pods) != 1 {
		return fmt.Errorf("%d Pods have the label %s=%s", len(pods), label, value)
	}
	r := c.kubelet.Pod(namespace + "/" + pods[0].Name)
	if r == nil {
		return fmt.Errorf("no process runs for Pod %s", pods[0].Name)
	}
	if err := r.Kill(); err != nil {
		return err
	}
	return c.await(ctx, "the Pod "+pods[0].Name+" runs again", func() bool {
		now := c.pods(namespace, label, value)
		return len(now) == 1 && len(now[0].Status.ContainerStatuses) == 1 && now[0].Status.ContainerStatuses[0].RestartCount > pods[0].Status.ContainerStatuses[0].RestartCount &&
			now[0].Status.ContainerStatuses[0].Ready
	})
}

// steered is how many packets the load balancer has sent to a Pod by their connection ids.
func (c *cluster) steered() (packets uint64, err error) {
	pods := c.pods("weir-system", "app.kubernetes.io/name", "weir-l4")
	if len(pods) != 1 {
		return 0, fmt.Errorf("%d Pods of the load balancer", len(pods))
	}
	r := c.kubelet.Pod("weir-system/" + pods[0].Name)
	if r == nil {
		return 0, fmt.Errorf("no process runs for Pod %s", pods[0].Name)
	}
	out, err := r.Command("/usr/bin/weir", "lb", "status", "--json")
	if err != nil {
		return 0, fmt.Errorf("weir lb status: %w: %s", err, out)
	}
	var status v1.LBStatus
	if err := json.Unmarshal([]byte(out), &status); err != nil || status.Kernel == nil {
		return 0, fmt.Errorf("weir lb status: %w: %s", err, out)
	}
	for _, reasons := range status.Kernel.Reasons {
		packets += reasons["cid"].Packets
	}
	return packets, nil
}

// programmed waits until a Gateway is, and returns its address.
func (c *cluster) programmed(ctx context.Context, namespace, name string) (address netip.Addr, err error) {
	why := ""
	err = c.await(ctx, "Gateway "+name+" is programmed", func() bool {
		var g gatewayv1.Gateway
		if err := c.plane.Get("/apis/gateway.networking.k8s.io/v1/namespaces/"+namespace+"/gateways/"+name, &g); err != nil {
			return false
		}
		for _, x := range g.Status.Conditions {
			if x.Type == "Programmed" {
				why = x.Message
				if x.Status == "True" && x.ObservedGeneration == g.Generation && len(g.Status.Addresses) > 0 {
					address, err = netip.ParseAddr(g.Status.Addresses[0].Value)
					return err == nil
				}
			}
		}
		return false
	})
	if err != nil {
		err = fmt.Errorf("%w: %s", err, why)
	}
	return address, err
}
