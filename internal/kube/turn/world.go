package turn

import (
	"cmp"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weir-lb/weir/internal/kube/turn/stunnerv1"
)

// World is what the API server has, as far as Translate reads it. Its objects are not changed.
type World struct {
	Classes        []*gatewayv1.GatewayClass
	Gateways       []*gatewayv1.Gateway
	Configs        []*stunnerv1.GatewayConfig
	Dataplanes     []*stunnerv1.Dataplane
	Routes         []*stunnerv1.UDPRoute
	StandardRoutes []*gatewayv1.UDPRoute
	StaticServices []*stunnerv1.StaticService
	Grants         []*gatewayv1.ReferenceGrant

	Services    []*corev1.Service
	Slices      []*discoveryv1.EndpointSlice
	Secrets     []*corev1.Secret
	Namespaces  []*corev1.Namespace
	Nodes       []*corev1.Node
	Deployments []*appsv1.Deployment
	DaemonSets  []*appsv1.DaemonSet
	ConfigMaps  []*corev1.ConfigMap // with Options.Legacy

	// Previous are the Configurations of the translation before; empty after a start.
	Previous map[types.NamespacedName]*Configuration
}

// Options are the operator's own settings.
type Options struct {
	Controller string // spec.controllerName of the classes that are served
	Class      string // loadBalancerClass of new Services; empty: the cluster's own load balancer
	Image      string // image of Pods whose Dataplane names none
	Discovery  string // URL of the config discovery service, as the Pods reach it
	Endpoints  bool   // peers of a Service are its endpoints; false: whatever its DNS name resolves to
	ClusterIPs bool   // with Endpoints: the cluster IP of a Service is a peer too
	Grants     bool   // a backend of STUNner's UDPRoute in another namespace needs a ReferenceGrant; STUNner demands none
	Domain     string // of the cluster's DNS; empty means cluster.local
	// Legacy: the configuration of all Gateways of a GatewayConfig is in a ConfigMap, for Pods that the user runs; none are made.
	Legacy bool
}

// Result is what a World means.
type Result struct {
	// Configurations of the Gateways. A Gateway of Kept has none here: what it had before stays in force. A Gateway in neither is gone.
	Configurations map[types.NamespacedName]*Configuration
	Kept           map[types.NamespacedName]bool

	// What is made for the Gateways, with the fields that matter and no others, for server-side apply.
	Services    []*corev1.Service
	Deployments []*appsv1.Deployment
	DaemonSets  []*appsv1.DaemonSet
	ConfigMaps  []*corev1.ConfigMap // with Options.Legacy
	Stay        []metav1.Object     // *corev1.Service, *appsv1.Deployment, *appsv1.DaemonSet, *corev1.ConfigMap of the World that were made before and stay as they are

	Classes        []*gatewayv1.GatewayClass // with the status that they should have
	Gateways       []*gatewayv1.Gateway      // likewise
	Routes         []*stunnerv1.UDPRoute     // likewise
	StandardRoutes []*gatewayv1.UDPRoute     // likewise

	Events []Event // in the order of their objects; the same as before as long as the reason is there
}

// Event is a line for the reader of `kubectl describe`.
type Event struct {
	Object  metav1.Object // one of the World
	Kind    string        // of the object
	Warning bool
	Reason  string // one word in CamelCase
	Message string
}

// index finds objects of a World by name.
type index struct {
	configs     map[types.NamespacedName]*stunnerv1.GatewayConfig
	dataplanes  map[types.NamespacedName]*stunnerv1.Dataplane
	statics     map[types.NamespacedName]*stunnerv1.StaticService
	gateways    map[types.NamespacedName]*gatewayv1.Gateway
	services    map[types.NamespacedName]*corev1.Service
	secrets     map[types.NamespacedName]*corev1.Secret
	namespaces  map[types.NamespacedName]*corev1.Namespace
	deployments map[types.NamespacedName]*appsv1.Deployment
	daemonsets  map[types.NamespacedName]*appsv1.DaemonSet
	addresses   map[types.NamespacedName][]string // of the endpoints of a Service, sorted
	clusterIPs  []clusterIP                       // by the name of the Service
	node        string                            // external address of the first node that has one
}

// clusterIP is the address of a Service.
type clusterIP struct {
	address netip.Addr
	service string
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func byName[P metav1.Object](list []P) map[types.NamespacedName]P {
	m := make(map[types.NamespacedName]P, len(list))
	for _, o := range list {
		m[nameOf(o)] = o
	}
	return m
}

// sorted are the objects by namespace and name.
func sorted[P metav1.Object](list []P) []P {
	byNames := func(a, b P) int { return compareNames(nameOf(a), nameOf(b)) }
	if slices.IsSortedFunc(list, byNames) {
		return list
	}
	return slices.SortedFunc(slices.Values(list), byNames)
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func newIndex(w *World) *index {
	return &index{
		configs: byName(w.Configs), dataplanes: byName(w.Dataplanes), statics: byName(w.StaticServices), gateways: byName(w.Gateways),
		services: byName(w.Services), secrets: byName(w.Secrets), namespaces: byName(w.Namespaces),
		deployments: byName(w.Deployments), daemonsets: byName(w.DaemonSets),
		addresses: endpoints(w.Slices), clusterIPs: clusterIPs(w.Services), node: externalAddress(w.Nodes),
	}
}

// endpoints are the addresses of each Service's endpoints, of those that are not ready too: a client that has negotiated with a peer knows
// better than its probe whether it is there, and a peer that ends keeps its calls.
func endpoints(list []*discoveryv1.EndpointSlice) map[types.NamespacedName][]string {
	all := map[types.NamespacedName][]string{}
	for _, slice := range list {
		service := slice.Labels[discoveryv1.LabelServiceName]
		if service == "" || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		name := types.NamespacedName{Namespace: slice.Namespace, Name: service}
		for j := range slice.Endpoints {
			all[name] = append(all[name], slice.Endpoints[j].Addresses...)
		}
	}
	for name := range all {
		slices.Sort(all[name])
		all[name] = slices.Compact(all[name])
	}
	return all
}

func clusterIPs(services []*corev1.Service) (all []clusterIP) {
	for _, s := range sorted(services) {
		if address, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
			all = append(all, clusterIP{address, nameOf(s).String()})
		}
	}
	return all
}

// externalAddress is that of the first node, by name, that has one.
func externalAddress(nodes []*corev1.Node) string {
	for _, node := range sorted(nodes) {
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeExternalIP && a.Address != "" {
				return a.Address
			}
		}
	}
	return ""
}
