package operator

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writeStatuses writes the statuses that differ from those of the world. The changes of all controllers to one object are one write.
func (l *loop) writeStatuses(ctx context.Context, results []Result) (failures []error) {
	wanted := map[types.UID]client.Object{}
	var order []StatusChange
	for i := range results {
		for _, s := range results[i].Statuses {
			uid := s.Object.GetUID()
			if wanted[uid] == nil {
				wanted[uid] = s.Object.DeepCopyObject().(client.Object)
				order = append(order, s)
			}
			s.change(wanted[uid])
		}
	}
	for _, s := range order {
		object := wanted[s.Object.GetUID()]
		if equality.Semantic.DeepEqual(s.Object, object) {
			continue
		}
		err := l.client.Status().Update(ctx, object)
		switch {
		case err == nil:
			l.counters.wroteStatus()
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			// It is gone, or has changed since it was listed: the event of that renders again.
			l.counters.conflicted()
		default:
			failures = append(failures, fmt.Errorf("write the status of %s %s: %w", kindOf(object), client.ObjectKeyFromObject(object), err))
		}
	}
	return failures
}

// kindOf names a kind in messages; objects of caches have no TypeMeta.
func kindOf(object client.Object) string { return fmt.Sprintf("%T", object)[1:] }
