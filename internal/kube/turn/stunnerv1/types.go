package stunnerv1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// GatewayConfig is what the Gateways of a GatewayClass share. The class names it in its parametersRef.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:categories=stunner,shortName=gwconf
// +kubebuilder:printcolumn:name="Realm",type=string,JSONPath=`.spec.realm`
// +kubebuilder:printcolumn:name="Dataplane",type=string,JSONPath=`.spec.dataplane`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatewayConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GatewayConfigSpec `json:"spec,omitempty"`
}

// GatewayConfigSpec is the content of a GatewayConfig.
type GatewayConfigSpec struct {
	// Dataplane is the name of the template of Pods; absent means default.
	Dataplane *string `json:"dataplane,omitempty"`
	// LogLevel is SCOPE:LEVEL,... of the data plane.
	LogLevel *string `json:"logLevel,omitempty"`
	// Realm of TURN authentication; absent means stunner.l7mp.io.
	//
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Realm *string `json:"realm,omitempty"`
	// AuthType is static (also plaintext), ephemeral (also longterm, timewindowed) or none; absent means static.
	//
	// +kubebuilder:validation:Enum=plaintext;static;longterm;ephemeral;timewindowed;none
	AuthType *string `json:"authType,omitempty"`
	// Username of static authentication.
	Username *string `json:"userName,omitempty"`
	// Password of static authentication.
	Password *string `json:"password,omitempty"`
	// SharedSecret of ephemeral authentication.
	SharedSecret *string `json:"sharedSecret,omitempty"`
	// AuthRef names a Secret with the keys type, username and password, or type and secret. It wins over the fields above.
	AuthRef *gatewayv1.SecretObjectReference `json:"authRef,omitempty"`
	// AuthLifetime has no effect.
	AuthLifetime *int32 `json:"authLifetime,omitempty"`
	// LoadBalancerServiceAnnotations are put on the Service of each Gateway. Annotations of the Gateway win.
	LoadBalancerServiceAnnotations map[string]string `json:"loadBalancerServiceAnnotations,omitempty"`
	// UserQuota is how many allocations one user may have in one Pod; 0 means no limit.
	UserQuota int `json:"userQuota,omitempty"`
	// STUNMode answers STUN binding requests and no others.
	STUNMode bool `json:"stunMode,omitempty"`
}

// GatewayConfigList is a list of them.
//
// +kubebuilder:object:root=true
type GatewayConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GatewayConfig `json:"items"`
}

// DataplaneResourceType is the kind of object that runs the Pods of a Gateway.
type DataplaneResourceType string

// The kinds.
const (
	DataplaneDeployment DataplaneResourceType = "Deployment"
	DataplaneDaemonSet  DataplaneResourceType = "DaemonSet"
)

// Dataplane is a template of the Pods that serve a Gateway.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:categories=stunner,scope=Cluster,shortName=dps
type Dataplane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              DataplaneSpec `json:"spec,omitempty"`
}

// DataplaneSpec is the content of a Dataplane. Absent fields mean Weir's defaults.
type DataplaneSpec struct {
	// Image of the container.
	Image string `json:"image,omitempty"`
	// ImagePullPolicy of the container.
	ImagePullPolicy *corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// ImagePullSecrets of the Pods.
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// DataplaneResource is Deployment or DaemonSet; absent means Deployment.
	//
	// +kubebuilder:validation:Enum=Deployment;DaemonSet
	DataplaneResource *DataplaneResourceType `json:"dataplaneResource,omitempty"`
	// Labels of the Pods.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the Pods.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Command of the container.
	Command []string `json:"command,omitempty"`
	// Args of the container.
	Args []string `json:"args,omitempty"`
	// EnvFrom is put into the container's environment.
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Env is put into the container's environment.
	Env []corev1.EnvVar `json:"env,omitempty"`
	// ContainerSecurityContext of the container.
	ContainerSecurityContext *corev1.SecurityContext `json:"containerSecurityContext,omitempty"`
	// Replicas of the Deployment; absent leaves the number to whoever scales it.
	Replicas *int32 `json:"replicas,omitempty"`
	// Resources of the container.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// TerminationGracePeriodSeconds is how long a Pod that ends may serve its allocations; absent means 3600.
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// HostNetwork puts the Pods into the network of their node.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// Affinity of the Pods.
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// SecurityContext of the Pods.
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`
	// Tolerations of the Pods.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// TopologySpreadConstraints of the Pods.
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// DisableHealthCheck serves no probes.
	DisableHealthCheck bool `json:"disableHealthCheck,omitempty"`
	// EnableMetricsEndpoint serves Prometheus metrics at port 8080.
	EnableMetricsEndpoint bool `json:"enableMetricsEndpoint,omitempty"`
	// OffloadEngine is None, XDP, TC or Auto; absent means None.
	//
	// +kubebuilder:validation:Enum="";None;XDP;TC;Auto
	OffloadEngine string `json:"offloadEngine,omitempty"`
	// OffloadInterfaces are those that the offload engine is attached to; none means all.
	OffloadInterfaces []string `json:"offloadInterfaces,omitempty"`
}

// DataplaneList is a list of them.
//
// +kubebuilder:object:root=true
type DataplaneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Dataplane `json:"items"`
}
