package operator

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// lister reads the objects of all kinds from informers.
type lister struct {
	cache  ctrlcache.Cache
	mapper meta.RESTMapper
	scheme *runtime.Scheme
	kinds  []Kind          // each once
	active map[string]bool // kinds with an informer, by type
	mark   func()
}

func newLister(cache ctrlcache.Cache, mapper meta.RESTMapper, scheme *runtime.Scheme, controllers []Controller) lister {
	l := lister{cache: cache, mapper: mapper, scheme: scheme, active: map[string]bool{}}
	index := map[reflect.Type]int{}
	for i := range controllers {
		for _, kind := range append(append([]Kind{}, controllers[i].Kinds...), controllers[i].Owned...) {
			at := reflect.TypeOf(kind.Object)
			if n, ok := index[at]; ok {
				l.kinds[n].Optional = l.kinds[n].Optional && kind.Optional
				continue
			}
			index[at] = len(l.kinds)
			l.kinds = append(l.kinds, kind)
		}
	}
	return l
}

// list reads every object. A kind that the API server begins to serve gets its informer here.
func (l *lister) list(ctx context.Context) (objects []client.Object, err error) {
	for i := range l.kinds {
		if needed := l.kinds[i].Needed; needed != nil && !l.active[kindOf(l.kinds[i].Object)] && !needed(objects) {
			continue
		}
		served, err := l.follow(ctx, &l.kinds[i])
		if err != nil {
			return nil, err
		}
		if !served {
			continue
		}
		list := l.kinds[i].List.DeepCopyObject().(client.ObjectList)
		if err := l.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %s: %w", kindOf(l.kinds[i].Object), err)
		}
		if err := meta.EachListItem(list, func(object runtime.Object) error {
			objects = append(objects, object.(client.Object))
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// follow makes the informer of a kind, once, and waits until it has listed.
func (l *lister) follow(ctx context.Context, kind *Kind) (served bool, err error) {
	name := kindOf(kind.Object)
	if l.active[name] {
		return true, nil
	}
	gvk, err := apiutil.GVKForObject(kind.Object, l.scheme)
	if err != nil {
		return false, err
	}
	if _, err := l.mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
		if meta.IsNoMatchError(err) && kind.Optional {
			return false, nil
		}
		return false, fmt.Errorf("the API server does not serve %s of %s; install its CRD: %w", gvk.Kind, gvk.GroupVersion(), err)
	}
	informer, err := l.cache.GetInformer(ctx, kind.Object)
	if err != nil {
		return false, fmt.Errorf("follow %s: %w", gvk.Kind, err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { l.mark() }, DeleteFunc: func(any) { l.mark() },
		UpdateFunc: func(before, after any) {
			if !sameMetadata(before, after) {
				l.mark()
			}
		},
	}); err != nil {
		return false, err
	}
	l.active[name] = true
	return true, nil
}

// sameMetadata says whether two objects of which only metadata is kept are equal but for their resourceVersion.
func sameMetadata(before, after any) bool {
	a, ok := before.(*metav1.PartialObjectMetadata)
	if !ok {
		return false
	}
	b, ok := after.(*metav1.PartialObjectMetadata)
	return ok && a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// reductions are the transforms of kinds of which not everything is kept.
func reductions(controllers []Controller) map[client.Object]ctrlcache.ByObject {
	all := map[client.Object]ctrlcache.ByObject{}
	for i := range controllers {
		for _, kind := range controllers[i].Kinds {
			if reduce := kind.Reduce; reduce != nil {
				all[kind.Object] = ctrlcache.ByObject{Transform: func(object any) (any, error) {
					if o, ok := object.(client.Object); ok {
						o.SetManagedFields(nil)
						reduce(o)
					}
					return object, nil
				}}
			}
		}
	}
	return all
}

// owned lists the objects of a controller's owned kinds, of whatever owner.
func (l *lister) owned(ctx context.Context, c *Controller) (map[objectID]client.Object, error) {
	all := map[objectID]client.Object{}
	for i := range c.Owned {
		gvk, err := apiutil.GVKForObject(c.Owned[i].Object, l.scheme)
		if err != nil {
			return nil, err
		}
		if !l.active[kindOf(c.Owned[i].Object)] {
			continue
		}
		list := c.Owned[i].List.DeepCopyObject().(client.ObjectList)
		if err := l.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
		}
		if err := meta.EachListItem(list, func(object runtime.Object) error {
			o := object.(client.Object)
			all[objectID{gvk.GroupKind(), client.ObjectKeyFromObject(o)}] = o
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}
