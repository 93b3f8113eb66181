package stunnerv1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// UDPRoute says which peers the clients of a Gateway may reach.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:categories=stunner
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type UDPRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              UDPRouteSpec             `json:"spec"`
	Status            gatewayv1.UDPRouteStatus `json:"status,omitempty"`
}

// UDPRouteSpec is the content of a UDPRoute.
type UDPRouteSpec struct {
	gatewayv1.CommonRouteSpec `json:",inline"`
	// Rules: only the first one counts.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Rules []UDPRouteRule `json:"rules"`
}

// UDPRouteRule names peers.
type UDPRouteRule struct {
	// BackendRefs are Services and StaticServices.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	BackendRefs []BackendRef `json:"backendRefs,omitempty"`
}

// BackendRef names a Service or StaticService, and the ports of its peers.
type BackendRef struct {
	// Group is empty for a Service and stunner.l7mp.io for a StaticService.
	//
	// +kubebuilder:default=""
	Group *gatewayv1.Group `json:"group,omitempty"`
	// Kind is Service or StaticService.
	//
	// +kubebuilder:default=Service
	Kind *gatewayv1.Kind `json:"kind,omitempty"`
	// Name of the object.
	Name gatewayv1.ObjectName `json:"name"`
	// Namespace of the object; absent means that of the route.
	Namespace *gatewayv1.Namespace `json:"namespace,omitempty"`
	// Port is the only port of the peers that may be reached, or with EndPort the first one; absent means every port.
	Port *gatewayv1.PortNumber `json:"port,omitempty"`
	// EndPort is the last port that may be reached.
	EndPort *gatewayv1.PortNumber `json:"endPort,omitempty"`
}

// UDPRouteList is a list of them.
//
// +kubebuilder:object:root=true
type UDPRouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []UDPRoute `json:"items"`
}

// StaticService names peers outside of the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:categories=stunner,shortName=ssvc
type StaticService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              StaticServiceSpec `json:"spec,omitempty"`
}

// StaticServiceSpec is the content of a StaticService.
type StaticServiceSpec struct {
	// Prefixes are IP addresses and prefixes.
	Prefixes []string `json:"prefixes"`
}

// StaticServiceList is a list of them.
//
// +kubebuilder:object:root=true
type StaticServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StaticService `json:"items"`
}
