package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/weir-lb/weir/internal/kube/pods"
)

const (
	resource     = "leases"
	clusterLabel = "weir-lb.github.io/cluster"
	entryKey     = "weir-lb.github.io/entry"
)

// Leases are those of one cluster. Any goroutine may call the methods.
type Leases struct {
	client             rest.Interface
	namespace, cluster string
}

// Lease is what one holds.
type Lease struct {
	Name     string // behind CLUSTER-
	Revision uint64
	Text     string
	Gone     bool // it has existed and does no more, at Revision; Text is empty
}

// Open prepares the connection and returns at once: whether the API server answers is learned from the calls.
func Open(c *pods.Config, cluster string) (*Leases, error) {
	if wrong := validation.IsDNS1123Label(cluster); len(wrong) > 0 {
		return nil, fmt.Errorf("%q is no name of a cluster: at most %d lower case letters, digits and -", cluster, validation.DNS1123LabelMaxLength)
	}
	client, err := c.Client("/apis", coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &Leases{client: client, namespace: c.Namespace, cluster: cluster}, nil
}

// Change creates a Lease with revision 0, or changes the one that has this revision, and returns it as it is then, changed or not. holder is
// for people.
func (l *Leases) Change(ctx context.Context, name string, revision uint64, text, holder string) (Lease, error) {
	out := new(coordinationv1.Lease)
	err := l.write(ctx, l.lease(name, revision, text, holder), revision == 0).Do(ctx).Into(out)
	switch {
	case err == nil:
		return l.read(out)
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return l.get(ctx, name)
	case apierrors.IsNotFound(err):
		return l.gone(ctx, name)
	}
	return Lease{}, explain("change Lease "+l.full(name), err)
}

func (l *Leases) write(ctx context.Context, lease *coordinationv1.Lease, create bool) *rest.Request {
	if create {
		return l.client.Post().Namespace(l.namespace).Resource(resource).Body(lease)
	}
	patch, err := json.Marshal(lease)
	if err != nil {
		panic(err) // texts and numbers
	}
	return l.client.Patch(types.MergePatchType).Namespace(l.namespace).Resource(resource).Name(lease.Name).Body(patch)
}

// lease is what is written.
func (l *Leases) lease(name string, revision uint64, text, holder string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.full(name), Labels: map[string]string{clusterLabel: l.cluster}, Annotations: map[string]string{entryKey: text}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	if revision > 0 {
		lease.ResourceVersion = strconv.FormatUint(revision, 10)
	}
	return lease
}

// Delete removes the Lease, if it has this revision.
func (l *Leases) Delete(ctx context.Context, name string, revision uint64) error {
	expected := strconv.FormatUint(revision, 10)
	err := l.client.Delete().Namespace(l.namespace).Resource(resource).Name(l.full(name)).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &expected}}).Do(ctx).Error()
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return explain("delete Lease "+l.full(name), err)
}

// get returns a Lease as it is.
func (l *Leases) get(ctx context.Context, name string) (Lease, error) {
	lease := new(coordinationv1.Lease)
	err := l.client.Get().Namespace(l.namespace).Resource(resource).Name(l.full(name)).Do(ctx).Into(lease)
	switch {
	case err == nil:
		return l.read(lease)
	case apierrors.IsNotFound(err):
		return l.gone(ctx, name)
	}
	return Lease{}, explain("read Lease "+l.full(name), err)
}

// gone is a missing Lease, at the revision of a list that was read after it was found to be missing.
func (l *Leases) gone(ctx context.Context, name string) (Lease, error) {
	list, err := l.list(ctx, 1)
	if err != nil {
		return Lease{}, err
	}
	revision, err := parseRevision(list.ResourceVersion)
	return Lease{Name: name, Revision: revision, Gone: true}, err
}

func (l *Leases) list(ctx context.Context, limit int64) (*coordinationv1.LeaseList, error) {
	list := new(coordinationv1.LeaseList)
	err := l.client.Get().Namespace(l.namespace).Resource(resource).
		VersionedParams(&metav1.ListOptions{LabelSelector: l.selector(), Limit: limit}, metav1.ParameterCodec).Do(ctx).Into(list)
	if err != nil {
		return nil, explain("list Leases", err)
	}
	return list, nil
}

func (l *Leases) selector() string { return clusterLabel + "=" + l.cluster }

// read returns what a Lease holds.
func (l *Leases) read(lease *coordinationv1.Lease) (Lease, error) {
	name, ours := strings.CutPrefix(lease.Name, l.cluster+"-")
	if !ours {
		return Lease{}, fmt.Errorf("Lease %s has the label of cluster %s, but not its name", lease.Name, l.cluster) //nolint:staticcheck // a name of Kubernetes
	}
	revision, err := parseRevision(lease.ResourceVersion)
	return Lease{Name: name, Revision: revision, Text: lease.Annotations[entryKey]}, err
}

func (l *Leases) full(name string) string { return l.cluster + "-" + name }

func parseRevision(text string) (uint64, error) {
	revision, err := strconv.ParseUint(text, 10, 63)
	if err != nil || revision == 0 {
		return 0, fmt.Errorf("resourceVersion %q is no number, so it is not known which change is newer; use an API server on etcd, or another store", text)
	}
	return revision, nil
}

// explain adds the remedy to what the API server refuses.
func explain(action string, err error) error {
	remedy := ""
	switch {
	case apierrors.IsForbidden(err):
		remedy = "; give the service account of the Pods a Role with get, list, watch, create, patch and delete on leases of coordination.k8s.io"
	case apierrors.IsUnauthorized(err):
		remedy = "; mount the token of the service account, or set KUBECTL_TOKEN"
	case errors.Is(err, context.DeadlineExceeded):
		remedy = "; the API server does not answer in time"
	}
	return fmt.Errorf("%s: %w%s", action, err, remedy)
}
