package controller

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"github.com/weir-lb/weir/internal/kube/operator"
	"github.com/weir-lb/weir/internal/kube/turn"
	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
	"github.com/weir-lb/weir/internal/kube/world"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/turn/authservice"
)

// DefaultName is spec.controllerName of the GatewayClasses that are served if Options say no other one.
const DefaultName = "weir-lb.github.io/turn"

// Options of a TURN controller.
type Options struct {
	Turn   turn.Options
	Listen string // HOST:PORT of the config discovery service
	Log    *slog.Logger

	Auth       *authservice.Service // gives out credentials of the configurations; nil: none does
	AuthListen string               // HOST:PORT of it
}

// Turn is the controller of TURN gateways. Its methods are safe for concurrent use, but for the functions of Controller.
type Turn struct {
	options   Options
	publisher *publisher

	// previous are the configurations of the last translation; only Translate uses it.
	previous map[types.NamespacedName]*turn.Configuration

	mu       sync.Mutex
	counters Counters
}

// Counters are what the controller found in the last translation.
type Counters struct {
	Gateways   int `metric:"weir_operator_turn_gateways" help:"TURN Gateways."`
	Programmed int `metric:"weir_operator_turn_gateways_programmed" help:"TURN Gateways that clients reach."`
	Kept       int `metric:"weir_operator_turn_gateways_kept" help:"TURN Gateways whose class or GatewayConfig is wrong: what they had before stays in force."`
	Listeners  int `metric:"weir_operator_turn_listeners" help:"Listeners in configurations of TURN Gateways."`
	Routes     int `metric:"weir_operator_turn_routes" help:"UDPRoutes with a parent among the TURN Gateways."`
}

// New makes a controller. It opens nothing before it runs.
func New(o Options) *Turn {
	return &Turn{options: o, publisher: newPublisher(&o)}
}

// Schemes adds STUNner's kinds to the scheme of an operator.
func Schemes() []func(*runtime.Scheme) error {
	return []func(*runtime.Scheme) error{stunnerv1.Install}
}

// Controller is what the operator runs.
func (t *Turn) Controller() operator.Controller {
	c := operator.Controller{
		Name: t.options.Turn.Controller,
		Kinds: []operator.Kind{
			{Object: &gatewayv1.GatewayClass{}, List: &gatewayv1.GatewayClassList{}},
			{Object: &gatewayv1.Gateway{}, List: &gatewayv1.GatewayList{}},
			{Object: &gatewayv1.UDPRoute{}, List: &gatewayv1.UDPRouteList{}, Optional: true},
			{Object: &gatewayv1beta1.ReferenceGrant{}, List: &gatewayv1beta1.ReferenceGrantList{}, Optional: true},
			{Object: &stunnerv1.GatewayConfig{}, List: &stunnerv1.GatewayConfigList{}, Optional: true},
			{Object: &stunnerv1.Dataplane{}, List: &stunnerv1.DataplaneList{}, Optional: true},
			{Object: &stunnerv1.UDPRoute{}, List: &stunnerv1.UDPRouteList{}, Optional: true},
			{Object: &stunnerv1.StaticService{}, List: &stunnerv1.StaticServiceList{}, Optional: true},
			{Object: &discoveryv1.EndpointSlice{}, List: &discoveryv1.EndpointSliceList{}},
			{Object: &corev1.Namespace{}, List: &corev1.NamespaceList{}},
			{Object: &corev1.Node{}, List: &corev1.NodeList{}},
		},
		Owned: []operator.Kind{
			{Object: &corev1.Service{}, List: &corev1.ServiceList{}},
			{Object: &appsv1.Deployment{}, List: &appsv1.DeploymentList{}},
			{Object: &appsv1.DaemonSet{}, List: &appsv1.DaemonSetList{}},
		},
		Secrets:    t.secrets,
		Translate:  t.translate,
		Publisher:  t.publisher,
		Everywhere: true,
	}
	if t.options.Turn.Legacy {
		c.Owned = append(c.Owned, operator.Kind{Object: &corev1.ConfigMap{}, List: &corev1.ConfigMapList{}})
	}
	return c
}

// Samples are the counters of the controller and of its discovery service.
func (t *Turn) Samples() []metrics.Sample {
	t.mu.Lock()
	c := t.counters
	t.mu.Unlock()
	stats := t.publisher.server.Stats()
	all := append(metrics.Of(&c), metrics.Of(&stats)...)
	if t.options.Auth != nil {
		all = append(all, metrics.Of(t.options.Auth.Stats())...)
	}
	return all
}

// secrets are those that translate reads.
func (t *Turn) secrets(w *world.World) []types.NamespacedName {
	return turn.Secrets(&turn.World{
		Classes: all[*gatewayv1.GatewayClass](w), Gateways: all[*gatewayv1.Gateway](w), Configs: all[*stunnerv1.GatewayConfig](w), Grants: grants(w),
	}, t.options.Turn)
}

func (t *Turn) translate(w *world.World) operator.Result {
	read := worldOf(w)
	read.Previous = t.previous
	t.publisher.follow(read.Nodes)
	result := turn.Translate(read, t.options.Turn, metav1.NewTime(w.Now))
	t.remember(result)
	out := operator.Result{Configs: t.configs(), Statuses: statuses(w, result, t.options.Turn.Controller)}
	for _, o := range result.Services {
		out.Objects = append(out.Objects, o)
	}
	for _, o := range result.Deployments {
		out.Objects = append(out.Objects, o)
	}
	for _, o := range result.DaemonSets {
		out.Objects = append(out.Objects, o)
	}
	for _, o := range result.ConfigMaps {
		out.Objects = append(out.Objects, o)
	}
	for _, o := range result.Stay {
		out.Stay = append(out.Stay, o.(client.Object))
	}
	const longest = 1000 // bytes of a note; the API takes 1 KiB
	for _, e := range result.Events {
		out.Events = append(out.Events, operator.Event{Object: e.Object.(client.Object), Warning: e.Warning, Reason: e.Reason, Action: "Translate", Note: e.Message[:min(len(e.Message), longest)]})
	}
	return out
}

// remember makes the configurations of a result the previous ones. What is kept stays.
func (t *Turn) remember(result *turn.Result) {
	next := result.Configurations
	for name := range result.Kept {
		if before := t.previous[name]; before != nil {
			next[name] = before
		}
	}
	t.previous = next
	c := Counters{Gateways: len(result.Gateways), Kept: len(result.Kept), Routes: len(result.Routes) + len(result.StandardRoutes)}
	for _, g := range result.Gateways {
		for _, condition := range g.Status.Conditions {
			if condition.Type == string(gatewayv1.GatewayConditionProgrammed) && condition.Status == metav1.ConditionTrue {
				c.Programmed++
			}
		}
	}
	for _, config := range next {
		c.Listeners += len(config.Listeners)
	}
	t.mu.Lock()
	t.counters = c
	t.mu.Unlock()
}

// configs are the configurations as they are sent.
func (t *Turn) configs() (all []operator.Config) {
	for name, config := range t.previous {
		text, err := json.Marshal(config)
		if err != nil {
			panic(fmt.Sprintf("a configuration is no JSON: %v", err)) // it has texts and numbers
		}
		all = append(all, operator.Config{Plane: name.String(), Text: text})
	}
	return all
}
