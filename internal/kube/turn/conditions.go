package turn

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// condition makes a metav1.Condition from the Gateway API's own types of strings.
func condition[C, R ~string](status metav1.ConditionStatus, kind C, reason R, message string) metav1.Condition {
	const longest = 32768 // of the API's schema
	return metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), Message: message[:min(len(message), longest)]}
}

func yes[C, R ~string](kind C, reason R, message string) metav1.Condition {
	return condition(metav1.ConditionTrue, kind, reason, message)
}

func no[C, R ~string](kind C, reason R, message string) metav1.Condition {
	return condition(metav1.ConditionFalse, kind, reason, message)
}

// set changes a condition. Its time is that of the last change of its status.
func (t *translation) set(all *[]metav1.Condition, generation int64, c metav1.Condition) {
	c.ObservedGeneration, c.LastTransitionTime = generation, t.now
	meta.SetStatusCondition(all, c)
}

// count is a number with a noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
