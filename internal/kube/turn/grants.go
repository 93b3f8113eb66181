package turn

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// from is who refers to another object.
type from struct{ group, kind, namespace string }

// granted reports whether a ReferenceGrant in the namespace of an object allows the reference.
func (t *translation) granted(by from, group, kind string, to types.NamespacedName) bool {
	if by.namespace == to.Namespace {
		return true
	}
	for _, grant := range t.world.Grants {
		if grant.Namespace == to.Namespace && grantsFrom(grant, by) && grantsTo(grant, group, kind, to.Name) {
			return true
		}
	}
	return false
}

func grantsFrom(grant *gatewayv1.ReferenceGrant, by from) bool {
	for _, f := range grant.Spec.From {
		if string(f.Group) == by.group && string(f.Kind) == by.kind && string(f.Namespace) == by.namespace {
			return true
		}
	}
	return false
}

func grantsTo(grant *gatewayv1.ReferenceGrant, group, kind, name string) bool {
	for _, to := range grant.Spec.To {
		if string(to.Group) == group && string(to.Kind) == kind && (to.Name == nil || string(*to.Name) == name) {
			return true
		}
	}
	return false
}

// notPermitted is the error of a reference that no ReferenceGrant allows.
type notPermitted struct {
	by   from
	kind string
	to   types.NamespacedName
}

func (e *notPermitted) Error() string {
	return fmt.Sprintf("%s %s is in another namespace, and no ReferenceGrant there allows a %s of namespace %s to name it; create one, or refer to an object of namespace %s",
		e.kind, e.to, e.by.kind, e.by.namespace, e.by.namespace)
}

// secretName is the Secret that a reference means. It is an error if that is none, or one of another namespace without a grant.
func (t *translation) secretName(ref gatewayv1.SecretObjectReference, by from) (types.NamespacedName, error) {
	if group := deref(ref.Group, ""); group != "" && group != "v1" { // STUNner accepts the version as a group
		return types.NamespacedName{}, fmt.Errorf("group %q has no Secret; remove the group", group)
	}
	if kind := deref(ref.Kind, "Secret"); kind != "Secret" {
		return types.NamespacedName{}, fmt.Errorf("a %s is not read here; name a Secret", kind)
	}
	name := types.NamespacedName{Namespace: string(deref(ref.Namespace, gatewayv1.Namespace(by.namespace))), Name: string(ref.Name)}
	if !t.granted(by, "", "Secret", name) {
		return name, &notPermitted{by, "Secret", name}
	}
	return name, nil
}
