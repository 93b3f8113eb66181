package turn

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// serving is what the Pods of a Gateway are doing.
type serving struct {
	foreign error // an object has the name that is not the Gateway's
	ready   bool  // a Pod is, or they are not managed here
	none    bool  // there should be none: replicas is 0
}

// pods makes the Deployment or DaemonSet of a Gateway.
func (t *translation) pods(g *gate) serving {
	switch {
	case t.options.Legacy, enabled(g.Annotations, annotationUnmanaged):
		return serving{ready: true}
	case deref(g.plane.Spec.DataplaneResource, stunnerv1.DataplaneDeployment) == stunnerv1.DataplaneDaemonSet:
		return t.daemonSet(g)
	}
	return t.deployment(g)
}

func (t *translation) deployment(g *gate) serving {
	existing := t.deployments[nameOf(g)]
	if existing != nil && !owned(existing, g) {
		return serving{foreign: foreignObject("Deployment", existing)}
	}
	d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: t.meta(g)}
	own(d, g)
	d.Spec.Selector, d.Spec.Template = selector(g), *t.template(g)
	// 1, which the default Dataplane has, is the API server's default: the number is left to whoever scales the Deployment, as with STUNner.
	if n := g.plane.Spec.Replicas; n != nil && *n != 1 {
		d.Spec.Replicas = new(*n)
	}
	if !g.plane.Spec.HostNetwork { // with it, an old and a new Pod do not fit on one node
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1))},
		}
	}
	t.result.Deployments = append(t.result.Deployments, d)
	if existing == nil {
		return serving{}
	}
	return serving{ready: existing.Status.AvailableReplicas > 0, none: existing.Spec.Replicas != nil && *existing.Spec.Replicas == 0}
}

func (t *translation) daemonSet(g *gate) serving {
	existing := t.daemonsets[nameOf(g)]
	if existing != nil && !owned(existing, g) {
		return serving{foreign: foreignObject("DaemonSet", existing)}
	}
	d := &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}, ObjectMeta: t.meta(g)}
	own(d, g)
	d.Spec.Selector, d.Spec.Template = selector(g), *t.template(g)
	t.result.DaemonSets = append(t.result.DaemonSets, d)
	return serving{ready: existing != nil && existing.Status.NumberAvailable > 0}
}

// meta has the Gateway's name and annotations.
func (t *translation) meta(g *gate) metav1.ObjectMeta {
	annotations := annotationsOf(g.Annotations)
	annotations[labelGateway] = nameOf(g).String()
	return metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, Annotations: annotations}
}

// selector is written as STUNner's operator writes it, because a selector cannot be changed: a Deployment of it is taken over.
func selector(g *gate) *metav1.LabelSelector {
	in := func(key, value string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in(labelApp, appStunner), in(labelGateway, g.Name), in(labelNamespace, g.Namespace)}}
}

// stay keeps what was made for a Gateway.
func (t *translation) stay(g *gate) {
	if s := t.services[nameOf(g)]; s != nil && owned(s, g) {
		t.result.Stay = append(t.result.Stay, s)
	}
	if d := t.deployments[nameOf(g)]; d != nil && owned(d, g) {
		t.result.Stay = append(t.result.Stay, d)
	}
	if d := t.daemonsets[nameOf(g)]; d != nil && owned(d, g) {
		t.result.Stay = append(t.result.Stay, d)
	}
}
