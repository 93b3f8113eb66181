package operator

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	statusWriters = 8   // at a time
	mostStatuses  = 128 // in one round
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
	order = slices.DeleteFunc(order, func(s StatusChange) bool { return equality.Semantic.DeepEqual(s.Object, wanted[s.Object.GetUID()]) })
	if len(order) > mostStatuses { // the next round writes the others: what data planes run does not wait for them
		order = order[:mostStatuses]
		defer l.mark()
	}
	var group sync.WaitGroup
	errs := make([]error, len(order))
	busy := make(chan struct{}, statusWriters)
	for i, s := range order {
		busy <- struct{}{}
		group.Go(func() {
			defer func() { <-busy }()
			errs[i] = l.writeStatus(ctx, wanted[s.Object.GetUID()])
		})
	}
	group.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// writeStatus writes the status of one object.
func (l *loop) writeStatus(ctx context.Context, object client.Object) error {
	err := l.client.Status().Update(ctx, object)
	switch {
	case err == nil:
		l.counters.wroteStatus()
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It is gone, or has changed since it was listed: the event of that renders again.
		l.counters.conflicted()
	default:
		return fmt.Errorf("write the status of %s %s: %w", kindOf(object), client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// kindOf names a kind in messages; objects of caches have no TypeMeta.
func kindOf(object client.Object) string { return fmt.Sprintf("%T", object)[1:] }
