package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
)

// Name is that of the operator in events, and of its Lease.
const Name = "weir-operator"

// Options of an Operator.
type Options struct {
	REST        *rest.Config
	Controllers []Controller
	// Schemes adds kinds besides those of Kubernetes' core, apps and discovery and of the Gateway API.
	Schemes []func(*runtime.Scheme) error
	// Election is the namespace of the Lease that elects one of several operators; empty: there is no other one.
	Election string
	// Labels are those of the Lease while this process is the leader, from which the others read them; nil: none.
	Labels map[string]string
	// Throttle is the shortest time between the begins of two renders; 0: DefaultThrottle.
	Throttle time.Duration
	Log      *slog.Logger
	// SecretInterval is how often the Secrets that are referred to are read again; 0: DefaultSecretInterval.
	SecretInterval time.Duration
}

// Operator runs controllers. Methods but Run are safe for concurrent use.
type Operator struct {
	manager manager.Manager
	lease   types.NamespacedName // without a name there is none
	loop    *loop
	log     *slog.Logger
}

// New makes an operator, which Run starts. It reads which kinds the API server serves.
func New(c Options) (*Operator, error) {
	scheme := runtime.NewScheme()
	for _, add := range append([]func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme, gatewayv1.Install, gatewayv1beta1.Install,
	}, c.Schemes...) {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	log := cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	logger := logr.FromSlogHandler(log.Handler())
	ctrllog.SetLogger(logger)
	once := &onceLog{log: log}
	m, err := manager.New(c.REST, manager.Options{
		Scheme:           scheme,
		Logger:           logger,
		Metrics:          server.Options{BindAddress: "0"}, // the admin API serves what the operator counts
		LeaderElection:   c.Election != "",
		LeaderElectionID: Name, LeaderElectionNamespace: c.Election, LeaderElectionReleaseOnCancel: true, LeaderElectionLabels: c.Labels,
		Cache: cache.Options{
			DefaultTransform:         cache.TransformStripManagedFields(),
			DefaultWatchErrorHandler: once.watchFailed,
			ByObject:                 reductions(c.Controllers),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("reach the API server at %s: %w", c.REST.Host, err)
	}
	o := &Operator{manager: m, log: log}
	if c.Election != "" {
		o.lease = types.NamespacedName{Namespace: c.Election, Name: Name}
	}
	o.loop = newLoop(c.Controllers, newLister(m.GetCache(), m.GetRESTMapper(), scheme, c.Controllers), m.GetClient(), m.GetEventRecorder(Name), log, c.Throttle)
	o.loop.lister.mark, o.loop.elected = o.loop.mark, m.Elected()
	o.loop.interval = cmp.Or(c.SecretInterval, DefaultSecretInterval)
	o.loop.secrets = &secrets{reader: m.GetAPIReader(), log: log, mark: o.loop.mark}
	return o, m.Add(o.loop)
}

// Run runs until ctx ends. Losing the leadership is an error: another process writes then.
func (o *Operator) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(o.log.Handler()))
	err := o.manager.Start(ctx)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	return err
}

// Leader returns the labels that the operator which leads has given its Lease. An error: none leads.
func (o *Operator) Leader(ctx context.Context) (map[string]string, error) {
	var lease coordinationv1.Lease
	if err := o.manager.GetAPIReader().Get(ctx, o.lease, &lease); err != nil {
		return nil, fmt.Errorf("which operator leads? %w", err)
	}
	if h := lease.Spec.HolderIdentity; h == nil || *h == "" {
		return nil, errors.New("no operator leads")
	}
	return lease.Labels, nil
}

// Ready returns nil once the world was rendered, by one that is not the leader too.
func (o *Operator) Ready() error {
	select {
	case <-o.loop.rendered:
		return nil
	default:
		return errors.New("the state of the world was not rendered yet")
	}
}

// Counters returns what was done since the start.
func (o *Operator) Counters() Counters { return o.loop.counters.read() }

// Status returns the present state.
func (o *Operator) Status() v1.OperatorStatus {
	c := &o.loop.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	s := v1.OperatorStatus{Leader: c.c.Leader, Renders: c.c.Renders, Failures: c.c.Failures, Error: c.error, Objects: c.c.Objects}
	for i := range o.loop.controllers {
		controller := v1.OperatorController{Name: o.loop.controllers[i].Name}
		if i < len(c.planes) {
			controller.Planes = c.planes[i]
		}
		s.Controllers = append(s.Controllers, controller)
	}
	return s
}

// Samples returns the counters as metrics.
func (o *Operator) Samples() []metrics.Sample {
	c := o.Counters()
	return metrics.Of(&c)
}

// onceLog logs the failure of watches once for each reason, as they are tried again for ever.
type onceLog struct {
	log *slog.Logger
	set texts
}

func (o *onceLog) watchFailed(_ context.Context, r *toolscache.Reflector, err error) {
	what := strings.TrimSpace(r.TypeDescription())
	if o.set.add(what + ": " + err.Error()) {
		o.log.Warn("the API server cannot be watched; it is tried again", "kind", what, "error", err, "remedy", "check the role of the operator's service account, and that the CRD is installed")
	}
}
