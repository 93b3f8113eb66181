package operator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ManagedBy is the label of objects that a controller applies; its value is [LabelValue] of the controller's name.
const ManagedBy = "weir-lb.github.io/managed-by"

// LabelValue makes a label's value of a controller's name.
func LabelValue(controller string) string { return strings.ReplaceAll(controller, "/", "_") }

// objectID names an object of any kind.
type objectID struct {
	kind schema.GroupKind
	name types.NamespacedName
}

// applies remembers what was applied last, so that an object which the API server completes in its own manner is not applied
// again in each round.
type applies struct {
	last map[objectID]applied
}

type applied struct {
	digest  string // of what was applied
	version string // resourceVersion that the object had then
}

func newApplies() *applies { return &applies{last: map[objectID]applied{}} }

// writeObjects applies the objects that differ, and deletes those of owned kinds that no result has.
func (l *loop) writeObjects(ctx context.Context, results []Result) (failures []error) {
	for i := range results {
		c := &l.controllers[i]
		if len(c.Owned) == 0 {
			continue
		}
		present, err := l.lister.owned(ctx, c)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		for _, object := range results[i].Objects {
			id := objectID{object.GetObjectKind().GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(object)}
			if err := l.apply(ctx, c, id, object, present[id]); err != nil {
				failures = append(failures, fmt.Errorf("apply %s %s: %w", id.kind.Kind, id.name, err))
			}
			delete(present, id)
		}
		stay := map[types.UID]bool{}
		for _, object := range results[i].Stay {
			stay[object.GetUID()] = true
		}
		for id, object := range present {
			if stay[object.GetUID()] || object.GetLabels()[ManagedBy] != LabelValue(c.Name) || object.GetDeletionTimestamp() != nil {
				continue
			}
			delete(l.applied.last, id)
			if err := l.client.Delete(ctx, object, client.PropagationPolicy("Background")); err != nil && !apierrors.IsNotFound(err) {
				failures = append(failures, fmt.Errorf("delete %s %s: %w", id.kind.Kind, id.name, err))
				continue
			}
			l.counters.deleted()
		}
	}
	return failures
}

// apply applies one object if what is there, which may be nil, lacks anything of it.
func (l *loop) apply(ctx context.Context, c *Controller, id objectID, object, there client.Object) error {
	wanted, err := plain(object)
	if err != nil {
		return err
	}
	labels := maps.Clone(wanted.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[ManagedBy] = LabelValue(c.Name)
	wanted.SetLabels(labels)
	text, err := wanted.MarshalJSON()
	if err != nil {
		return err
	}
	digest := Digest(text)
	if there != nil {
		is, err := plain(there)
		if err != nil {
			return err
		}
		last := l.applied.last[id]
		if last == (applied{digest, there.GetResourceVersion()}) || last.digest == digest && contains(is.Object, wanted.Object) {
			return nil
		}
	}
	owner := cmp.Or(strings.ReplaceAll(c.Name, "/", "-"), "weir")
	if err := l.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return err
	}
	l.applied.last[id] = applied{digest, wanted.GetResourceVersion()}
	l.counters.applied()
	return nil
}

// plain is an object without what others write: status, and metadata of the API server.
func plain(object client.Object) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		for _, name := range []string{"creationTimestamp", "resourceVersion", "uid", "generation", "managedFields"} {
			delete(metadata, name)
		}
	}
	// The converter shares what it can with the object.
	u := (&unstructured.Unstructured{Object: fields}).DeepCopy()
	return u, nil
}

// contains says whether every field of wanted is in is, with the same value.
func contains(is, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		there, ok := is.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range wanted {
			if key == "apiVersion" || key == "kind" {
				continue // objects of caches have none
			}
			if !contains(there[key], value) {
				return false
			}
		}
		return true
	case []any:
		there, ok := is.([]any)
		if !ok || len(there) != len(wanted) {
			return false
		}
		for i := range wanted {
			if !contains(there[i], wanted[i]) {
				return false
			}
		}
		return true
	}
	return is == wanted
}
