package l4

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/world"
)

// namespaceMatches says whether the labels of a namespace match; a selector that is missing or invalid matches none.
func (t *translation) namespaceMatches(name string, selector *metav1.LabelSelector) bool {
	namespace, ok := world.Get[*corev1.Namespace](t.world, "", name)
	if !ok || selector == nil {
		return false
	}
	match, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && match.Matches(labels.Set(namespace.Labels))
}

// granted says whether a ReferenceGrant lets a route of a kind in one namespace refer to a Service in another.
func (t *translation) granted(kind, from, namespace, service string) bool {
	if from == namespace {
		return true
	}
	for _, grant := range t.grants {
		if grant.Namespace == namespace && fromMatches(grant, kind, from) && toMatches(grant, service) {
			return true
		}
	}
	return false
}

func fromMatches(grant *gatewayv1.ReferenceGrant, kind, namespace string) bool {
	for _, f := range grant.Spec.From {
		if f.Group == gatewayv1.GroupName && string(f.Kind) == kind && string(f.Namespace) == namespace {
			return true
		}
	}
	return false
}

func toMatches(grant *gatewayv1.ReferenceGrant, service string) bool {
	for _, to := range grant.Spec.To {
		if to.Group == "" && to.Kind == "Service" && (to.Name == nil || *to.Name == "" || string(*to.Name) == service) {
			return true
		}
	}
	return false
}
