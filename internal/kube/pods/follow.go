package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// retryEvery is how often the own Pod is requested while the API server does not answer.
const retryEvery = 2 * time.Second

// Follow calls changed with the other Pods: first when they are known, then whenever one comes, goes, or changes its address or state.
// changed is called by one goroutine at a time. Follow blocks until ctx ends, and then returns nil; an error means that the
// configuration cannot be meant. While the API server does not answer, the latest Pods count, and one line in the log says so.
func Follow(ctx context.Context, c Config, changed func([]Pod)) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // what goes wrong comes to trouble
	if c.Progress == nil {
		c.Progress = new(Progress)
	}
	f := &follower{config: c, log: c.Log, changed: changed, wake: make(chan struct{}, 1), seen: map[string]time.Time{}}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	selector, owner, err := f.selection(ctx, client)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return f.run(ctx, client, selector, owner)
}

type follower struct {
	config  Config
	log     *slog.Logger
	changed func([]Pod)
	wake    chan struct{}
	mu      sync.Mutex
	seen    map[string]time.Time // when what needs a remedy has happened last, by remedy; guarded by mu
}

// selection returns the label selector of the Pods, and the controller that they must have; empty: any.
func (f *follower) selection(ctx context.Context, client rest.Interface) (selector string, owner types.UID, err error) {
	c := &f.config
	if c.Selector != "" {
		return c.Selector, "", nil
	}
	self := f.own(ctx, client)
	if self == nil {
		return "", "", nil
	}
	if c.Label == "" {
		if owner = controllerOf(self); owner == "" {
			return "", "", fmt.Errorf("Pod %s has no controller, so nothing says which Pods belong to it; set KUBECTL_SELECTOR", c.Self) //nolint:staticcheck // a name of Kubernetes
		}
		return "", owner, nil
	}
	value, ok := self.Labels[c.Label]
	if !ok {
		return "", "", fmt.Errorf("KUBECTL_SELECTOR_LABEL: Pod %s has no label %s", c.Self, c.Label)
	}
	return c.Label + "=" + value, "", nil
}

// own requests this process's Pod until the server answers; nil: ctx has ended.
func (f *follower) own(ctx context.Context, client rest.Interface) *corev1.Pod {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		self := new(corev1.Pod)
		err := client.Get().Namespace(f.config.Namespace).Resource("pods").Name(f.config.Self).Do(ctx).Into(self)
		if err == nil {
			return self
		}
		f.trouble(ctx, err)
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
		}
	}
}

func (f *follower) run(ctx context.Context, client rest.Interface, selector string, owner types.UID) error {
	source := cache.NewFilteredListWatchFromClient(client, "pods", f.config.Namespace, func(o *metav1.ListOptions) { o.LabelSelector = selector })
	informer := cache.NewSharedIndexInformerWithOptions(source, &corev1.Pod{}, cache.SharedIndexInformerOptions{})
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { f.trouble(ctx, err) })
	if err == nil {
		err = informer.SetTransform(essence)
	}
	if err != nil {
		return err
	}
	events, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f.notify() }, UpdateFunc: func(any, any) { f.notify() }, DeleteFunc: func(any) { f.notify() },
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	if cache.WaitForCacheSync(ctx.Done(), events.HasSynced) {
		f.deliver(ctx, informer.GetStore(), owner)
	}
	<-ended
	return nil
}

// deliver calls changed with the Pods in the store, now and whenever they differ, until ctx ends.
func (f *follower) deliver(ctx context.Context, store cache.Store, owner types.UID) {
	var last []Pod
	for first := true; ; first = false {
		var all []*corev1.Pod
		for _, item := range store.List() {
			if p, ok := item.(*corev1.Pod); ok {
				all = append(all, p)
			}
		}
		if found := others(all, f.config.Self, owner); first || !slices.EqualFunc(found, last, Pod.equal) {
			last = found
			f.config.Progress.deliver(found)
			f.log.Info("cluster Pods", "namespace", f.config.Namespace, "others", summary(found))
			f.changed(found)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
	}
}

func (f *follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// silence is how long something has not happened if it is reported again. Retries are at most half a minute apart.
const silence = 5 * time.Minute

// trouble reports that the API server refuses, or does not answer: once for each remedy, until that has not been needed for a while.
func (f *follower) trouble(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) { // the list is read again
		return
	}
	text, remedy := err.Error(), "see that KUBECTL_HOST is the API server"
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		text = status.Status().Message
	}
	f.config.Progress.fail(text)
	switch {
	case apierrors.IsForbidden(err):
		remedy = "give the service account of the Pod a Role with get, list and watch on pods"
	case apierrors.IsUnauthorized(err):
		remedy = "set KUBECTL_TOKEN, or mount the token of the service account"
	case apierrors.IsNotFound(err):
		remedy = "set KUBECTL_NAMESPACE, or KUBECTL_SELECTOR where the host name is not that of the Pod"
	}
	f.mu.Lock()
	now, last := time.Now(), f.seen[remedy]
	f.seen[remedy] = now
	f.mu.Unlock()
	if !last.IsZero() && now.Sub(last) < silence {
		return
	}
	f.log.Warn("the Pods of the cluster cannot be read; the latest ones count", "server", f.config.host, "namespace", f.config.Namespace, "error", text, "remedy", remedy)
}

// essence is what is stored of a Pod, which may be long.
func essence(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, ResourceVersion: p.ResourceVersion, UID: p.UID,
			OwnerReferences: p.OwnerReferences, DeletionTimestamp: p.DeletionTimestamp,
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs, Conditions: p.Status.Conditions},
	}, nil
}

// summary is NAME=ADDRESS of each Pod, for the log.
func summary(pods []Pod) []string {
	texts := []string{}
	for _, p := range pods {
		texts = append(texts, fmt.Sprintf("%s=%s", p.Name, p.Addresses[0]))
	}
	return texts
}
