package pods

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is a Pod that has an address.
type Pod struct {
	Name      string
	Addresses []netip.Addr // the first is the Pod's main one
	Ready     bool
	Ending    bool // it is being deleted
}

func (p Pod) equal(q Pod) bool {
	return p.Name == q.Name && p.Ready == q.Ready && p.Ending == q.Ending && slices.Equal(p.Addresses, q.Addresses)
}

// others returns the Pods besides self that have an address and may still run, ordered by name. owner is the controller whose Pods
// count; empty: any.
func others(all []*corev1.Pod, self string, owner types.UID) []Pod {
	var found []Pod
	for _, p := range all {
		if p.Name == self || owner != "" && controllerOf(p) != owner {
			continue
		}
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed { // another Pod may have the address by now
			continue
		}
		if addresses := addressesOf(p); len(addresses) > 0 {
			found = append(found, Pod{Name: p.Name, Addresses: addresses, Ready: ready(p), Ending: p.DeletionTimestamp != nil})
		}
	}
	slices.SortFunc(found, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	return found
}

func addressesOf(p *corev1.Pod) (all []netip.Addr) {
	texts := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(all, a.Unmap()) {
			all = append(all, a.Unmap())
		}
	}
	return all
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// controllerOf returns the id of the object that made a Pod, such as its StatefulSet; empty: none did.
func controllerOf(p *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(p); owner != nil {
		return owner.UID
	}
	return ""
}
