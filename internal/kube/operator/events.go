package operator

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

type eventKey struct {
	object types.UID
	reason string
	note   string
}

// writeEvents writes the events that the last render did not have.
func (l *loop) writeEvents(results []Result) {
	now := map[eventKey]bool{}
	for i := range results {
		for _, e := range results[i].Events {
			key := eventKey{e.Object.GetUID(), e.Reason, e.Note}
			if now[key] {
				continue
			}
			now[key] = true
			if l.reported[key] {
				continue
			}
			kind := corev1.EventTypeNormal
			if e.Warning {
				kind = corev1.EventTypeWarning
			}
			l.recorder.Eventf(e.Object, nil, kind, e.Reason, e.Action, "%s", e.Note)
			l.counters.wroteEvent()
		}
	}
	l.reported = now
}
