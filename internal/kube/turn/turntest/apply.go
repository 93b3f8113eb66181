package turntest

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-lb/weir/internal/kube/turn"
)

// Apply writes a result into the world, as an API server and its controllers do: Pods become ready, node ports are assigned.
func Apply(w *turn.World, r *turn.Result) {
	for _, o := range r.Services {
		created := o.DeepCopy()
		for i := range created.Spec.Ports {
			if p := &created.Spec.Ports[i]; p.NodePort == 0 && created.Spec.Type != "ClusterIP" {
				p.NodePort = int32(30000 + i)
			}
		}
		put(&w.Services, created)
	}
	for _, o := range r.Deployments {
		created := o.DeepCopy()
		created.Status.AvailableReplicas = 1
		put(&w.Deployments, created)
	}
	for _, o := range r.DaemonSets {
		created := o.DeepCopy()
		created.Status.NumberAvailable = 1
		put(&w.DaemonSets, created)
	}
	for _, o := range r.ConfigMaps {
		put(&w.ConfigMaps, o.DeepCopy())
	}
	for _, o := range r.Classes {
		put(&w.Classes, o)
	}
	for _, o := range r.Gateways {
		put(&w.Gateways, o)
	}
	for _, o := range r.Routes {
		put(&w.Routes, o)
	}
	for _, o := range r.StandardRoutes {
		put(&w.StandardRoutes, o)
	}
	w.Previous = r.Configurations
}

// put replaces the object of a name, or adds it.
func put[P metav1.Object](list *[]P, object P) {
	for i, o := range *list {
		if o.GetNamespace() == object.GetNamespace() && o.GetName() == object.GetName() {
			(*list)[i] = object
			return
		}
	}
	*list = append(*list, object)
}

// Times are the times of all conditions, to see that they stay.
func Times(r *turn.Result) (all []string) {
	add := func(what string, conditions []metav1.Condition) {
		for _, c := range conditions {
			all = append(all, fmt.Sprintln(what, c.Type, c.Status, c.LastTransitionTime.UTC()))
		}
	}
	for _, o := range r.Classes {
		add(o.Name, o.Status.Conditions)
	}
	for _, o := range r.Gateways {
		add(o.Name, o.Status.Conditions)
		for _, l := range o.Status.Listeners {
			add(o.Name+" "+string(l.Name), l.Conditions)
		}
	}
	for _, o := range r.Routes {
		for _, p := range o.Status.Parents {
			add(o.Name, p.Conditions)
		}
	}
	return all
}
