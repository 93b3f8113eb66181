package turn

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// owned reports whether an object belongs to a Gateway.
func owned(o metav1.Object, g *gate) bool {
	for _, ref := range o.GetOwnerReferences() {
		if ref.Kind == "Gateway" && ref.UID == g.UID {
			return true
		}
	}
	return false
}

// foreignObject is the error of an object with the name of a Gateway that does not belong to it.
func foreignObject(kind string, o metav1.Object) error {
	return fmt.Errorf("there is a %s %s that is not the Gateway's (no ownerReference names it); rename the Gateway, or delete the %[1]s", kind, nameOf(o))
}

// own makes an object one of a Gateway: its owner, and the labels by which it is found.
func own(o metav1.Object, g *gate) {
	labels := map[string]string{}
	for key, value := range g.Labels {
		if !notCopied(key) {
			labels[key] = value
		}
	}
	labels[labelOwned], labels[labelGateway], labels[labelNamespace] = ownedBy, g.Name, g.Namespace
	o.SetLabels(labels)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: g.Name, UID: g.UID}})
}

// podLabels select the Pods of a Gateway.
func podLabels(g *gate) map[string]string {
	return map[string]string{labelApp: appStunner, labelGateway: g.Name, labelNamespace: g.Namespace}
}
