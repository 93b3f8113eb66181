package leases

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// briefly is how soon a watch that brings nothing may end at the earliest. Servers end them after half an hour or so.
const briefly = time.Second

var errEnded = errors.New("watch Leases: the API server ends each watch at once")

// Follow passes every Lease of the cluster, then each change, until ctx ends or the API server does not answer. It returns an error of changed.
func (l *Leases) Follow(ctx context.Context, changed func(Lease) error) error {
	for {
		list, err := l.list(ctx, 0)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := l.pass(&list.Items[i], false, changed); err != nil {
				return err
			}
		}
		revision := list.ResourceVersion
		for err == nil {
			revision, err = l.watch(ctx, revision, changed)
		}
		if !apierrors.IsGone(err) && !apierrors.IsResourceExpired(err) { // else the changes since are no longer known
			return err
		}
	}
}

// watch passes the changes after a revision until the server ends it, and returns the newest one.
func (l *Leases) watch(ctx context.Context, revision string, changed func(Lease) error) (newest string, err error) {
	if err := ctx.Err(); err != nil {
		return revision, err
	}
	began, first := time.Now(), revision
	w, err := l.client.Get().Namespace(l.namespace).Resource(resource).
		VersionedParams(&metav1.ListOptions{LabelSelector: l.selector(), Watch: true, ResourceVersion: revision, AllowWatchBookmarks: true}, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return revision, explain("watch Leases", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if ctx.Err() != nil {
			break
		}
		if event.Type == watch.Error {
			return revision, explain("watch Leases", apierrors.FromObject(event.Object))
		}
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			continue
		}
		if revision = lease.ResourceVersion; event.Type == watch.Bookmark {
			continue
		}
		if err := l.pass(lease, event.Type == watch.Deleted, changed); err != nil {
			return revision, err
		}
	}
	if ctx.Err() == nil && revision == first && time.Since(began) < briefly {
		return revision, errEnded
	}
	return revision, ctx.Err()
}

func (l *Leases) pass(lease *coordinationv1.Lease, deleted bool, changed func(Lease) error) error {
	read, err := l.read(lease)
	if err != nil {
		return err
	}
	if deleted {
		read.Text, read.Gone = "", true
	}
	return changed(read)
}
