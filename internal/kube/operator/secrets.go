package operator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// DefaultSecretInterval is how often Secrets are read again.
	DefaultSecretInterval = 10 * time.Second
	// secretPause bounds the requests for Secrets to 20 a second.
	secretPause = 50 * time.Millisecond
)

// secrets has the Secrets that controllers refer to, and no others: each is got by its name, and again from time to time. The operator
// needs no right to list or watch Secrets.
type secrets struct {
	reader client.Reader // not a cache
	log    *slog.Logger
	mark   func()
	once   texts

	mu    sync.Mutex
	known map[types.NamespacedName]*corev1.Secret // nil: it is not there, or may not be read
}

// read returns those of the named Secrets that are there, and forgets all others. An error: the API server does not say.
func (s *secrets) read(ctx context.Context, names []types.NamespacedName) (found []client.Object, err error) {
	next := map[types.NamespacedName]*corev1.Secret{}
	for _, name := range names {
		if _, twice := next[name]; twice {
			continue
		}
		s.mu.Lock()
		secret, known := s.known[name]
		s.mu.Unlock()
		if !known {
			if secret, err = s.get(ctx, name); err != nil {
				return nil, err
			}
		}
		if secret != nil {
			found = append(found, secret)
		}
		next[name] = secret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = next
	return found, nil
}

// get returns nil if the Secret is not there, or the operator may not read it.
func (s *secrets) get(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	secret := &corev1.Secret{}
	err := s.reader.Get(ctx, name, secret)
	switch {
	case err == nil:
		secret.ManagedFields = nil
		return secret, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		if s.once.add(name.String()) {
			s.log.Warn("a Secret may not be read, and is treated as missing", "secret", name, "error", err, "remedy", "give the operator's service account the verb get on secrets in this namespace")
		}
		return nil, nil
	}
	return nil, fmt.Errorf("read Secret %s: %w", name, err)
}

// follow reads the known Secrets again until ctx ends.
func (s *secrets) follow(ctx context.Context, every time.Duration) {
	for wait(ctx, every) {
		s.mu.Lock()
		names := make([]types.NamespacedName, 0, len(s.known))
		for name := range s.known {
			names = append(names, name)
		}
		s.mu.Unlock()
		changed := false
		for _, name := range names {
			if secret, err := s.get(ctx, name); err == nil { // else it is as it was
				changed = s.replace(name, secret) || changed
			}
			if !wait(ctx, secretPause) {
				return
			}
		}
		if changed {
			s.mark()
		}
	}
}

// replace returns whether a Secret that is still known is another one now.
func (s *secrets) replace(name types.NamespacedName, secret *corev1.Secret) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.known[name]
	if !known || before == nil && secret == nil || before != nil && secret != nil && before.ResourceVersion == secret.ResourceVersion && before.UID == secret.UID {
		return false
	}
	s.known[name] = secret
	return true
}
