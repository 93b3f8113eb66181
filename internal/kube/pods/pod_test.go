package pods

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func pod(name, owner string, phase corev1.PodPhase, addresses ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", UID: types.UID(owner), Controller: new(true)}}
	}
	for i, a := range addresses {
		if i == 0 {
			p.Status.PodIP = a
		}
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return p
}

// The others are Pods of the same controller that may run and have an address.
func TestOthers(t *testing.T) {
	ready, ending := pod("coap-3", "set", corev1.PodRunning, "10.0.0.4"), pod("coap-4", "set", corev1.PodRunning, "10.0.0.5")
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	ending.DeletionTimestamp = new(metav1.Now())
	all := []*corev1.Pod{
		ready, ending,
		pod("coap-0", "set", corev1.PodRunning, "10.0.0.1"),
		pod("coap-1", "set", corev1.PodRunning, "10.0.0.2", "fd00::2"),
		pod("coap-2", "set", corev1.PodPending),
		pod("coap-5", "set", corev1.PodFailed, "10.0.0.6"),
		pod("coap-6", "set", corev1.PodSucceeded, "10.0.0.6"),
		pod("coap-7", "set", corev1.PodRunning, "nonsense"),
		pod("web-1", "other", corev1.PodRunning, "10.0.0.7"),
		pod("alone", "", corev1.PodRunning, "10.0.0.8"),
	}
	const set = "[{coap-1 [10.0.0.2 fd00::2] false false} {coap-3 [10.0.0.4] true false} {coap-4 [10.0.0.5] false true}"
	if got := fmt.Sprint(others(all, "coap-0", "set")); got != set+"]" {
		t.Error(got)
	}
	if got := fmt.Sprint(others(all, "coap-0", "")); got != "[{alone [10.0.0.8] false false} "+set[1:]+" {web-1 [10.0.0.7] false false}]" {
		t.Error(got)
	}
}
