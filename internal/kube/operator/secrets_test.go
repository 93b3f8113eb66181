package operator

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secretReader answers as an API server does.
type secretReader struct {
	client.Reader
	answers map[string]any // a resource version, or an error
	gets    map[string]int
}

func (r *secretReader) Get(_ context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.gets[name.Name]++
	switch answer := r.answers[name.Name].(type) {
	case string:
		into.(*corev1.Secret).ObjectMeta = metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, ResourceVersion: answer}
		return nil
	case error:
		return answer
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name.Name)
}

// Secrets are got by name, when a controller refers to them, and then once in the interval; a change marks, a failure changes nothing, and
// what no object refers to any more is forgotten.
func TestSecretsAreReadByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "b", errors.New("no"))
		r := &secretReader{answers: map[string]any{"a": "1", "b": forbidden}, gets: map[string]int{}}
		marks := 0
		s := &secrets{reader: r, log: slog.New(slog.DiscardHandler), mark: func() { marks++ }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.follow(ctx, time.Minute) }()
		names := []types.NamespacedName{{Namespace: "n", Name: "a"}, {Namespace: "n", Name: "a"}, {Namespace: "n", Name: "b"}, {Namespace: "n", Name: "c"}}
		read := func(want int) {
			t.Helper()
			if found, err := s.read(ctx, names); err != nil || len(found) != want {
				t.Fatalf("%d Secrets, %v, want %d", len(found), err, want)
			}
		}
		read(1)
		read(1)
		if r.gets["a"] != 1 || r.gets["b"] != 1 || r.gets["c"] != 1 {
			t.Errorf("each is read once: %v", r.gets)
		}
		next := func(want int) {
			t.Helper()
			time.Sleep(61 * time.Second)
			synctest.Wait()
			if marks != want {
				t.Errorf("%d marks, want %d", marks, want)
			}
		}
		next(0)
		r.answers["c"] = "1"
		next(1)
		read(2)
		r.answers["a"] = errors.New("the API server is away")
		next(1)
		read(2)
		delete(r.answers, "c")
		next(2)
		names = names[:1]
		read(1)
		before := r.gets["b"]
		next(2)
		if r.gets["b"] != before {
			t.Error("a Secret is read to which no object refers")
		}
		names = append(names, types.NamespacedName{Namespace: "n", Name: "a2"})
		r.answers["a2"] = errors.New("the API server is away")
		if _, err := s.read(ctx, names); err == nil {
			t.Error("a new Secret that cannot be read is not there, without an error")
		}
		cancel()
		<-done
	})
}
