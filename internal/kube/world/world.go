package world

import (
	"cmp"
	"iter"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// World is a cluster at one moment.
type World struct {
	// Now is the time that changed conditions get.
	Now time.Time
	// Applied says which pieces of configurations the data planes of the controller that translates run, by plane and name of the
	// piece; the value is the digest that its configuration had. See operator.Config.
	Applied map[string]map[string]string
	// Refused says why data planes refuse the newest configuration, by plane.
	Refused map[string]string

	kinds map[reflect.Type]*kind
}

type kind struct {
	objects []client.Object
	named   map[types.NamespacedName]client.Object
}

// New returns the world of these objects at a time.
func New(now time.Time, objects ...client.Object) *World {
	w := &World{Now: now, kinds: map[reflect.Type]*kind{}}
	w.Add(objects...)
	return w
}

// Add adds objects of kinds that the world has none of yet.
func (w *World) Add(objects ...client.Object) {
	added := map[reflect.Type]*kind{}
	for _, object := range objects {
		at := reflect.TypeOf(object)
		k := added[at]
		if k == nil {
			k = &kind{named: map[types.NamespacedName]client.Object{}}
			added[at], w.kinds[at] = k, k
		}
		k.objects = append(k.objects, object)
		k.named[client.ObjectKeyFromObject(object)] = object
	}
	for _, k := range added {
		slices.SortFunc(k.objects, func(a, b client.Object) int {
			return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
		})
	}
}

// With returns the same objects as a controller sees them whose data planes have applied these pieces, and refuse for these reasons.
func (w *World) With(applied map[string]map[string]string, refused map[string]string) *World {
	return &World{Now: w.Now, Applied: applied, Refused: refused, kinds: w.kinds}
}

// All yields every object of a kind, such as *gatewayv1.Gateway, in the order of namespace and name.
func All[T client.Object](w *World) iter.Seq[T] {
	return func(yield func(T) bool) {
		k := w.kinds[reflect.TypeFor[T]()]
		if k == nil {
			return
		}
		for _, object := range k.objects {
			if !yield(object.(T)) {
				return
			}
		}
	}
}

// Get returns an object of a kind by its name; of a kind without namespaces with an empty namespace.
func Get[T client.Object](w *World, namespace, name string) (object T, ok bool) {
	k := w.kinds[reflect.TypeFor[T]()]
	if k == nil {
		return object, false
	}
	found, ok := k.named[types.NamespacedName{Namespace: namespace, Name: name}]
	if !ok {
		return object, false
	}
	return found.(T), true
}

// Has says whether this very piece of a plane's configuration is applied.
func (w *World) Has(plane, piece, digest string) bool {
	return w.Applied[plane][piece] == digest && digest != ""
}
